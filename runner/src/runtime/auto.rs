//! **auto**: the first of embedded, whole, bwrap, and embedded in a weaker tier that can do all that is requested.
//!
//! It is chosen by what each answers, by whether the kernel makes the namespaces of embedded, and, where that is not it, by a
//! trial of bwrap; where neither can do all, embedded stays and says what it cannot. A sandbox that fails later is not built again by the other;
//! what is told and recorded of such a run says both what failed and why it was not embedded's.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::bwrap::Bwrap;
use super::embedded::Embedded;
use super::launch;
use crate::plan::{Answer, Begun, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Tree};

/// The runtimes that it chooses from, by preference.
pub const AUTO: [&str; 2] = ["embedded", "bwrap"];

/// The runtime of a command line that names none.
#[derive(Debug, Default)]
pub struct Auto {
    embedded: Embedded,
    bwrap: Bwrap,
    is_bwrap: AtomicBool,
    /// Why it is not the first: in which way embedded falls short, and what it lacks.
    why: Mutex<Option<(&'static str, String)>>,
}

/// Embedded falls short of what is requested.
const CANNOT: &str = "cannot do all that is requested";
/// It can do all that, in a way that is second to another sandbox.
const WEAKER: &str = "is less than whole here";

/// The requested controls that a runtime does not intend, with the reasons.
fn lacking(runtime: &dyn Runtime, policy: &Policy, job: &Job) -> Vec<String> {
    let requested = policy.enforcement.required_controls.iter();
    let lacking = requested.filter_map(|control| match runtime.answer(*control, policy, job) {
        Answer::Intends(_) => None,
        Answer::Cannot(why) => Some(format!("{control}: {why}")),
    });
    lacking.collect()
}

impl Auto {
    fn chosen(&self) -> &dyn Runtime {
        if self.is_bwrap.load(Ordering::Relaxed) {
            &self.bwrap
        } else {
            &self.embedded
        }
    }

    /// Takes bwrap where that can do all that is requested.
    fn turn_to_bwrap(&self, policy: &Policy, job: &Job, how: &'static str, why: &str) -> bool {
        if !lacking(&self.bwrap, policy, job).is_empty()
            || self.bwrap.is_missing().is_some()
            || self.bwrap.works_here(policy, job).is_err()
        {
            return false;
        }
        self.is_bwrap.store(true, Ordering::Relaxed);
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some((how, why.to_owned()));
        true
    }

    fn why(&self) -> Option<(&'static str, String)> {
        self.why
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Runtime for Auto {
    fn id(&self) -> &str {
        self.chosen().id()
    }

    fn version(&self) -> String {
        self.chosen().version()
    }

    fn tier(&self) -> Option<&'static str> {
        self.chosen().tier()
    }

    fn keeps_paths(&self) -> bool {
        self.chosen().keeps_paths()
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        self.chosen().answer(control, policy, job)
    }

    fn environment(&self, policy: &Policy, job: &Job) -> Vec<(OsString, OsString)> {
        self.chosen().environment(policy, job)
    }

    fn cwd(&self, tree: &Tree, job: &Job) -> PathBuf {
        self.chosen().cwd(tree, job)
    }

    fn instead(&self) -> Option<String> {
        self.why()
            .map(|(_, why)| format!("instead of embedded: {why}"))
    }

    fn get_ready(&self) {
        self.embedded.get_ready();
    }

    fn begin(&self, policy: &Policy, job: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        let lacking = lacking(&self.embedded, policy, job);
        if !lacking.is_empty() && self.turn_to_bwrap(policy, job, CANNOT, &lacking.join("; ")) {
            return self.bwrap.begin(policy, job, streams);
        }
        // Less than all of it is second to another sandbox, where that can be had.
        if let Some(tier) = self.embedded.weaker_tier()
            && self.turn_to_bwrap(policy, job, WEAKER, &format!("its tier is {tier}"))
        {
            return self.bwrap.begin(policy, job, streams);
        }
        // For another attempt.
        let again = launch::again(&streams)?;
        match self.embedded.begin(policy, job, streams) {
            Err(LaunchError::Namespaces { errno }) => {
                let why = format!("{} ({errno})", Reason::NO_USER_NAMESPACE);
                if self.turn_to_bwrap(policy, job, CANNOT, &why) {
                    self.bwrap.begin(policy, job, again)
                } else {
                    Err(LaunchError::Namespaces { errno })
                }
            }
            begun => begun,
        }
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        let mut launch = self.chosen().launch(plan, begun, meanwhile)?;
        launch.effect.remarks.extend(
            self.why()
                .map(|(how, why)| format!("runtime bwrap, because embedded {how}: {why}")),
        );
        Ok(launch)
    }
}
