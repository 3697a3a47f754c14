//! Kills of the runner at random moments.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use super::{Killing, verifies};
use crate::world::ready;

/// Numbers that look random and are the same each time (xorshift64*, Vigna 2016).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % limit
    }
}

#[test]
fn a_runner_may_be_killed_at_any_moment() {
    let _ = ready!();
    const KILLS: u32 = 200;
    const EACH: u32 = 20;
    let seed = std::env::var("RUNNER_TEST_SEED").map_or(0x5eed_0f17, |text| text.parse().unwrap());
    println!("RUNNER_TEST_SEED={seed}");
    let mut numbers = Numbers(seed);
    let killing = Killing::new();
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let began = Instant::now();
            assert!(!killing.is_killed(&mut killing.command(false, "")));
            began.elapsed()
        })
        .collect();
    times.sort();
    let median = u64::try_from(times[times.len() / 2].as_micros()).unwrap();
    let mut limit = median;
    let (mut killed, mut ended) = (0, 0);
    while killed < KILLS {
        // The first moments of each batch are those of a ledger that is begun.
        let killing = Killing::new();
        let until = killed + EACH;
        while killed < until {
            let mut child = killing.command(false, "").spawn().unwrap();
            std::thread::sleep(Duration::from_micros(numbers.below(limit)));
            child.kill().unwrap();
            let status = child.wait().unwrap();
            if status.signal() == Some(9) {
                killed += 1;
            } else {
                assert_eq!(status.code(), Some(0));
                ended += 1;
                // The machine has less to do than when the median was taken.
                limit = (limit - limit / 10).max(1_000);
            }
            assert!(ended < 5 * KILLS, "only {killed} were killed in time");
        }
        killing.is_well(&format!("seed {seed}, {killed} killed"));
        verifies(&killing.world);
    }
    println!("{killed} killed, {ended} ended before, limit {median} to {limit} µs");
}
