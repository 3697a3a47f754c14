#!/usr/bin/env python3
"""Prints examples/data/sales.csv: the same 200 invented sales every time."""

REGIONS = ("north", "east", "south", "west")
PRODUCTS = (("anvil", 8900), ("bolt", 35), ("crank", 1250), ("dowel", 80), ("engine", 45000))


def rows():
    state = 1
    for number in range(200):
        # A linear congruential generator (Numerical Recipes); the low bits are not used.
        state = (state * 1664525 + 1013904223) % 2**32
        pick = state >> 12
        product, cents = PRODUCTS[pick % 5]
        region, units = REGIONS[pick // 5 % 4], pick // 20 % 12 + 1
        yield f"2026-{number // 28 + 1:02}-{number % 28 + 1:02},{region},{product},{units},{cents // 100}.{cents % 100:02}"


if __name__ == "__main__":
    print("date,region,product,units,unit_price")
    for row in rows():
        print(row)
