//! The spine of one run and what is measured about it.
//!
//! `Policy → plan::compile → strict? refuse → launch, and meanwhile: store can take a record? → Effect → start record →
//! go → supervise → Outcome → observe → execution record`, the same for every workload.

pub mod artifacts;
mod listing;
mod measured;
mod observe;
pub mod output;
mod patience;
mod record;
mod refusal;
mod relay;
mod remains;
mod request;
mod signals;
mod spine;
mod stop;
mod streams;
mod supervise;
mod violations;

pub use measured::{Measure, Printed, Probed, STDERR};
pub use patience::{moment_in, write_until};
pub use record::RecordError;
pub use relay::Stdin;
pub use remains::await_end;
pub use request::{Event, Finished, Ledger, Observer, Request, RunError};
pub use spine::execute;
pub use stop::Stop;
