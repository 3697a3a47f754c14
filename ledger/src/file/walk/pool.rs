//! Work done by several threads whose results are taken in the order in which the work was given.
//!
//! The thread that gives work and takes results does some of it, too, rather than wait. Only so much is under
//! way that memory stays flat.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic;
use std::sync::mpsc::{
    Receiver, RecvError, Sender, SyncSender, TryRecvError, channel, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::{Builder, Scope};

/// Pieces of work under way for each thread: one that it does, one that waits for it, one that waits to be taken.
const PIECES: usize = 3;

/// A piece of work and where its result goes.
struct Task<J, R> {
    job: J,
    result: SyncSender<R>,
}

/// Threads that turn a `J` into an `R`, and this one.
pub(super) struct Pool<J, R, F> {
    work: F,
    give: Sender<Task<J, R>>,
    queue: Arc<Mutex<Receiver<Task<J, R>>>>,
    under_way: VecDeque<Receiver<R>>,
    room: usize,
}

impl<J, R, F> Pool<J, R, F>
where
    J: Send,
    R: Send,
    F: Fn(J) -> R + Clone + Send,
{
    /// Starts `threads` less this one; fewer, where the system gives no more.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: NonZeroUsize,
        work: F,
    ) -> Self
    where
        J: 'scope,
        R: 'scope,
        F: 'scope,
    {
        let (give, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 1..threads.get() {
            let (queue, work) = (Arc::clone(&queue), work.clone());
            let worker = move || {
                while let Ok(task) = wait(&queue) {
                    task.run(&work);
                }
            };
            if Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        Self {
            work,
            give,
            queue,
            under_way: VecDeque::new(),
            room: PIECES * threads.get(),
        }
    }

    /// Whether more work may be given now.
    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < self.room
    }

    /// Gives work.
    pub(super) fn give(&mut self, job: J) {
        let (result, taken) = sync_channel(1);
        // This value holds the other end: it is taken.
        let _ = self.give.send(Task { job, result });
        self.under_way.push_back(taken);
    }

    /// The result of the work that was given first; `None` when all were taken. A worker's panic goes on here:
    /// its result is never skipped, and never waited for in vain.
    pub(super) fn take(&mut self) -> Option<R> {
        let first = self.under_way.pop_front()?;
        loop {
            match first.try_recv() {
                Ok(result) => return Some(result),
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {}
            }
            match self.queued() {
                Some(task) => task.run(&self.work),
                None => match first.recv() {
                    Ok(result) => return Some(result),
                    Err(RecvError) => break,
                },
            }
        }
        panic::resume_unwind(Box::new("a thread ended without its result"))
    }

    /// Work that nobody does yet.
    fn queued(&self) -> Option<Task<J, R>> {
        match self.queue.try_lock() {
            Ok(queue) => queue.try_recv().ok(),
            Err(TryLockError::Poisoned(queue)) => queue.into_inner().try_recv().ok(),
            // A worker waits there for more: there is none.
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<J, R> Task<J, R> {
    fn run(self, work: &impl Fn(J) -> R) {
        // Nobody waits for it any more when the walk ended early.
        let _ = self.result.send(work(self.job));
    }
}

fn wait<J, R>(queue: &Mutex<Receiver<Task<J, R>>>) -> Result<Task<J, R>, RecvError> {
    let queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    queue.recv()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::thread;

    const THREE: NonZeroUsize = NonZeroUsize::new(3).unwrap();

    #[test]
    fn results_come_in_the_order_of_the_work() {
        for threads in 1..=8 {
            let threads = NonZeroUsize::new(threads).unwrap();
            let results: Vec<usize> = thread::scope(|scope| {
                let mut pool = Pool::start(scope, threads, |n: usize| {
                    // Later pieces are done sooner.
                    (0..(300 - n) * 50).fold(n, |n, _| std::hint::black_box(n))
                });
                let (mut next, mut results, mut most) = (0, Vec::new(), 0);
                loop {
                    while next < 300 && pool.has_room() {
                        pool.give(next);
                        next += 1;
                    }
                    most = most.max(pool.under_way.len());
                    let Some(result) = pool.take() else { break };
                    results.push(result);
                }
                assert!(most <= PIECES * threads.get());
                results
            });
            assert_eq!(results, (0..300).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_threads_work_at_once() {
        // Nobody gets past the barrier alone. The workers do so even when this thread only waits.
        let barrier = Arc::new(Barrier::new(2));
        let done = thread::scope(|scope| {
            let mut pool = Pool::start(scope, THREE, {
                let barrier = Arc::clone(&barrier);
                move |()| barrier.wait().is_leader()
            });
            (0..4).for_each(|_| pool.give(()));
            std::iter::from_fn(|| pool.take()).count()
        });
        assert_eq!(done, 4);
    }

    #[test]
    fn a_panic_is_no_result_and_no_hang() {
        for threads in [1, 2, 3] {
            let run = thread::spawn(move || {
                let threads = NonZeroUsize::new(threads).unwrap();
                thread::scope(|scope| {
                    let mut pool = Pool::start(scope, threads, |n: u32| {
                        assert_ne!(n, 5, "not this one");
                        n
                    });
                    (0..9).for_each(|n| pool.give(n));
                    std::iter::from_fn(|| pool.take()).count()
                })
            });
            assert!(run.join().is_err(), "{threads} threads");
        }
    }

    #[test]
    fn an_early_end_stops_the_threads() {
        thread::scope(|scope| {
            let mut pool = Pool::start(scope, THREE, |n: u32| n);
            (0..9).for_each(|n| pool.give(n));
            assert_eq!(pool.take(), Some(0));
        });
    }
}
