//! How much a module may hold: its memories and tables count together.

use wasmtime::ResourceLimiter;

/// Bytes that one element of a table takes: a reference, and what the engine keeps beside it.
const ELEMENT_BYTES: usize = 16;
/// Instances: the module's own.
const INSTANCES: usize = 1;
/// Memories and tables of it, more of each than compilers make.
const MOST: usize = 64;

/// Counts what a module holds, and refuses what is beyond.
#[derive(Debug)]
pub(crate) struct Limits {
    most: Option<usize>,
    held: usize,
}

impl Limits {
    /// With this ceiling in bytes.
    pub(crate) fn new(most: Option<u64>) -> Self {
        Self {
            most: most.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            held: 0,
        }
    }

    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let held = self.held.saturating_add(desired.saturating_sub(current));
        if self.most.is_some_and(|most| held > most) {
            return false;
        }
        self.held = held;
        true
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        // What the module's own maximum forbids is not granted, and is not counted either.
        Ok(maximum.is_none_or(|most| desired <= most) && self.grow(current, desired))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let bytes = |elements: usize| elements.saturating_mul(ELEMENT_BYTES);
        Ok(maximum.is_none_or(|most| desired <= most) && self.grow(bytes(current), bytes(desired)))
    }

    fn instances(&self) -> usize {
        INSTANCES
    }

    fn tables(&self) -> usize {
        MOST
    }

    fn memories(&self) -> usize {
        MOST
    }
}
