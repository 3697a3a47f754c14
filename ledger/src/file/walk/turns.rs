//! Work prepared by several threads at once and taken in the order in which it was given.
//!
//! Every thread takes what it prepared itself when its turn comes: results, which are many small allocations,
//! stay with the thread that made them, and only what taking adds up goes from one to the next. A thread that
//! is not yet on prepares more rather than wait, up to a bound that keeps memory flat.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};

/// Results that a thread keeps at most before it waits for its turn.
const KEPT: usize = 3;

/// Prepares every job that `next` gives, with so many threads, this one among them (fewer, where the system gives
/// no more), and takes the results in the order of the jobs, one at a time. `next` is called by one thread at a time.
///
/// # Errors
/// The first that `take` returned; nothing is taken after it.
///
/// # Panics
/// When one of the functions did, in whatever thread: no result is skipped, and none waited for in vain.
pub(super) fn in_order<J, R, E: Send>(
    threads: NonZeroUsize,
    next: impl FnMut() -> Option<J> + Send,
    prepare: impl Fn(J) -> R + Sync,
    take: impl FnMut(R) -> Result<(), E> + Send,
) -> Result<(), E> {
    let turns = Turns {
        input: Mutex::new(Input {
            next,
            given: 0,
            over: false,
        }),
        on: AtomicU64::new(0),
        taking: Mutex::new(Taking {
            take,
            over: false,
            error: None,
        }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        for _ in 1..threads.get() {
            let worker = || turns.work(&prepare);
            if Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        turns.work(&prepare);
    });
    let taking = turns.taking.into_inner();
    match taking.unwrap_or_else(PoisonError::into_inner).error {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

struct Input<N> {
    next: N,
    given: u64,
    over: bool,
}

struct Taking<T, E> {
    take: T,
    /// Nothing more is taken: one was an error, or a thread panicked.
    over: bool,
    error: Option<E>,
}

struct Turns<N, T, E> {
    input: Mutex<Input<N>>,
    /// The job whose result is taken next; changed only under `taking`.
    on: AtomicU64,
    taking: Mutex<Taking<T, E>>,
    changed: Condvar,
}

impl<N, T, E> Turns<N, T, E> {
    fn work<J, R>(&self, prepare: &impl Fn(J) -> R)
    where
        N: FnMut() -> Option<J>,
        T: FnMut(R) -> Result<(), E>,
    {
        let _ends = EndsOnPanic(self);
        let mut kept = VecDeque::with_capacity(KEPT);
        while let Some((number, job)) = self.job() {
            kept.push_back((number, prepare(job)));
            if !self.take_own(&mut kept, KEPT - 1) {
                return;
            }
        }
        self.take_own(&mut kept, 0);
    }

    fn job<J>(&self) -> Option<(u64, J)>
    where
        N: FnMut() -> Option<J>,
    {
        let mut input = lock(&self.input);
        if input.over {
            return None;
        }
        let Some(job) = (input.next)() else {
            input.over = true;
            return None;
        };
        let number = input.given;
        input.given += 1;
        Some((number, job))
    }

    /// Takes what is on among these, and waits until no more than `most` are left; false when nothing more
    /// is taken by anybody.
    fn take_own<R>(&self, kept: &mut VecDeque<(u64, R)>, most: usize) -> bool
    where
        T: FnMut(R) -> Result<(), E>,
    {
        while let Some((number, _)) = kept.front() {
            let on = self.on.load(Ordering::Acquire) == *number;
            if !on && kept.len() <= most {
                return true;
            }
            let taking = lock(&self.taking);
            let not_yet = |taking: &mut Taking<T, E>| {
                !taking.over && self.on.load(Ordering::Acquire) != *number
            };
            let waited = self.changed.wait_while(taking, not_yet);
            let mut taking = waited.unwrap_or_else(PoisonError::into_inner);
            if taking.over {
                return false;
            }
            if let Some((number, result)) = kept.pop_front() {
                if let Err(error) = (taking.take)(result) {
                    taking.error = Some(error);
                    taking.over = true;
                }
                self.on.store(number + 1, Ordering::Release);
                self.changed.notify_all();
            }
        }
        true
    }
}

/// Lets nobody wait for a thread that panicked.
struct EndsOnPanic<'a, N, T, E>(&'a Turns<N, T, E>);

impl<N, T, E> Drop for EndsOnPanic<'_, N, T, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            lock(&self.0.input).over = true;
            lock(&self.0.taking).over = true;
            self.0.changed.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).unwrap()
    }

    #[test]
    fn results_are_taken_in_the_order_of_the_jobs() {
        for count in 1..=8 {
            let mut jobs = 0..300usize;
            let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut taken = Vec::new();
            let prepare = |n: usize| {
                most.fetch_max(
                    under_way.fetch_add(1, Ordering::SeqCst) + 1,
                    Ordering::SeqCst,
                );
                // Later ones are done sooner.
                (0..(300 - n) * 50).fold(n, |n, _| std::hint::black_box(n))
            };
            let take = |n| {
                under_way.fetch_sub(1, Ordering::SeqCst);
                taken.push(n);
                Ok::<_, Infallible>(())
            };
            in_order(threads(count), || jobs.next(), prepare, take).unwrap();
            assert_eq!(taken, (0..300).collect::<Vec<_>>());
            assert!(most.into_inner() <= KEPT * count);
        }
    }

    #[test]
    fn the_threads_work_at_once() {
        // Nobody gets past the barrier alone.
        let barrier = Barrier::new(3);
        let mut jobs = 0..3 * 5;
        let mut taken = 0;
        let prepare = |_| barrier.wait();
        let take = |_| {
            taken += 1;
            Ok::<_, Infallible>(())
        };
        in_order(threads(3), || jobs.next(), prepare, take).unwrap();
        assert_eq!(taken, 15);
    }

    #[test]
    fn nothing_is_taken_after_an_error() {
        for count in [1, 2, 3, 8] {
            let mut jobs = 0..;
            let mut taken = Vec::new();
            let take = |n| {
                taken.push(n);
                if n == 20 { Err(n) } else { Ok(()) }
            };
            // The jobs have no end: the threads stop all the same.
            let error = in_order(threads(count), || jobs.next(), |n: u32| n, take);
            assert_eq!(error, Err(20));
            assert_eq!(taken, (0..=20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_is_no_result_and_no_hang() {
        for count in [1, 2, 3] {
            for place in ["next", "prepare", "take"] {
                let run = thread::spawn(move || {
                    let panics = |here: &str, n: u32| {
                        assert!(here != place || n != 5, "not this one");
                        n
                    };
                    let mut jobs = 0..;
                    in_order(
                        threads(count),
                        || jobs.next().map(|n| panics("next", n)),
                        |n| panics("prepare", n),
                        |n| {
                            assert!(n <= 5 || place == "next", "none after the panic");
                            panics("take", n);
                            Ok::<_, Infallible>(())
                        },
                    )
                });
                assert!(run.join().is_err(), "{count} threads, {place}");
            }
        }
    }

    #[test]
    fn no_jobs_are_no_results() {
        let take = |(): ()| -> Result<(), Infallible> { panic!("nothing was given") };
        in_order(threads(4), || None, |()| (), take).unwrap();
    }
}
