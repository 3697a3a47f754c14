//! What a filter costs that hands denied calls over, against the same filter that denies them itself: an allowed call (getpid)
//! and a denied one (getcpu), in interleaved pairs. `cargo run -p runner --example filter_cost [PAIRS]`; docs/performance.md.

#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "a measurement: raw system calls, and nothing to go on with where one fails"
)]

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Instant;

use ledger::facts::policy::DEFAULT_PROFILE;
use nix::poll::{PollFd, PollFlags, poll};
use runner::mechanism::seccomp::{self, Architecture, Calls};
use runner::sys::notify::{Listener, Turn};
use runner::sys::{filter, process};

/// How often each call is made in one round: a few milliseconds, so that some rounds are left alone on a busy machine.
const ALLOWED: u32 = 20_000;
const DENIED: u32 = 500;
/// Rounds of one child, of which the fastest counts.
const ROUNDS: u32 = 50;

/// What an allowed and a denied call of a child under a filter take, in nanoseconds.
fn child(hands_over: bool) -> [f64; 2] {
    let names = DEFAULT_PROFILE.iter().chain(&["getcpu"]);
    let names: Vec<String> = names.map(|name| (*name).to_owned()).collect();
    let plain = seccomp::compile(&Calls::Deny(&names), Architecture::native().unwrap()).unwrap();
    let reporting = seccomp::reporting(&plain);
    let (mut from, mut to) = std::io::pipe().unwrap();
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let Some(pid) = process::fork().unwrap() else {
        nix::sys::prctl::set_no_new_privs().unwrap();
        let number = if hands_over {
            filter::install_reporting("seccomp", &reporting).unwrap()
        } else {
            filter::install("seccomp", &plain).unwrap();
            -1
        };
        to.write_all(&number.to_le_bytes()).unwrap();
        wait.read_exact(&mut [0]).unwrap();
        for (call, count) in [(libc::SYS_getpid, ALLOWED), (libc::SYS_getcpu, DENIED)] {
            let round = |_| {
                let began = Instant::now();
                for _ in 0..count {
                    // SAFETY: integers; neither call follows a null pointer.
                    unsafe { libc::syscall(call, 0, 0, 0) };
                }
                u64::try_from(began.elapsed().as_nanos()).unwrap()
            };
            let took = (0..ROUNDS).map(round).min().unwrap();
            to.write_all(&took.to_le_bytes()).unwrap();
        }
        process::exit_now(0);
    };
    let mut told = [0; 4];
    from.read_exact(&mut told).unwrap();
    let number = i32::from_le_bytes(told);
    let pidfd = process::open(pid).unwrap();
    let mut listener = (number >= 0).then(|| Listener::fetch(&pidfd, number).unwrap());
    go.write_all(&[1]).unwrap();
    // As in a run: woken by whatever happens first.
    while let Some(heard) = &mut listener {
        let mut list = [
            PollFd::new(heard.as_fd(), PollFlags::POLLIN),
            PollFd::new(pidfd.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut list, nix::poll::PollTimeout::NONE).unwrap();
        if list[1].revents().is_some_and(|events| !events.is_empty()) {
            break;
        }
        while let Turn::Denied(_) = heard.turn().unwrap() {}
    }
    process::wait(&pidfd).unwrap();
    [ALLOWED, DENIED].map(|count| {
        let mut took = [0; 8];
        from.read_exact(&mut took).unwrap();
        // Of one call, in nanoseconds.
        u64::from_le_bytes(took) as f64 / f64::from(count)
    })
}

fn main() {
    let pairs = std::env::args().nth(1);
    let pairs: usize = pairs.map_or(20, |text| text.parse().unwrap());
    let list = Vec::new;
    let mut times = [[list(), list()], [list(), list()]];
    for pair in 0..pairs {
        // Each goes first as often as the other.
        for at in [pair % 2, 1 - pair % 2] {
            for (list, took) in times[at].iter_mut().zip(child(at == 1)) {
                list.push(took);
            }
        }
    }
    for (of, call) in ["allowed (getpid)", "denied (getcpu)"].iter().enumerate() {
        for (filter, name) in ["denies itself", "hands over"].iter().enumerate() {
            let list = &mut times[filter][of];
            list.sort_unstable_by(f64::total_cmp);
            let (least, middle) = (list[0], list[list.len() / 2]);
            println!("{call:17} {name:14} minimum {least:9.1} ns  median {middle:9.1} ns");
        }
    }
}
