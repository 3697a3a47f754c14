//! Threads that leave the signals to this process to another one.
//!
//! A signal to a process is taken by one thread alone, whichever of those that wait for it comes first (signal(7),
//! signalfd(2)): one that is not meant must not wait for any.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static DEAF: Cell<u32> = const { Cell::new(0) };
}

/// As long as it is there, this thread takes no signal. It stays in its thread.
#[derive(Debug)]
pub struct Deaf(PhantomData<*const ()>);

impl Deaf {
    /// From now on.
    #[must_use]
    pub fn begin() -> Self {
        DEAF.with(|deaf| deaf.set(deaf.get() + 1));
        Self(PhantomData)
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        DEAF.with(|deaf| deaf.set(deaf.get() - 1));
    }
}

/// Whether this thread is to wait for no signal.
#[must_use]
pub fn is_deaf() -> bool {
    DEAF.with(|deaf| deaf.get() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_is_deaf_as_long_as_it_says() {
        assert!(!is_deaf());
        let (one, other) = (Deaf::begin(), Deaf::begin());
        drop(one);
        assert!(is_deaf());
        assert!(!std::thread::spawn(is_deaf).join().unwrap());
        drop(other);
        assert!(!is_deaf());
    }
}
