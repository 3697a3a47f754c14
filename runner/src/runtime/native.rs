//! **native**: no isolation. The workload runs as the caller, with the caller's files, network and processes.
//!
//! It is there as the baseline of every measurement and is never chosen by itself: `--allow-native` or
//! `RUNNER_ALLOW_NATIVE=1` must say so.

use std::path::PathBuf;

use ledger::facts::control::Control;
use ledger::facts::policy::Policy;

use super::launch;
use crate::init::wire::Spec;
use crate::plan::{
    Answer, Begun, Effect, Intent, Job, Launch, LaunchError, Plan, Reason, Runtime, Streams, Tree,
};

/// The runtime that isolates nothing.
#[derive(Debug)]
pub struct Native;

impl Runtime for Native {
    fn id(&self) -> &str {
        "native"
    }

    fn shows_workload(&self) -> bool {
        false
    }

    fn shares_nothing(&self) -> bool {
        true
    }

    fn serves(&self, control: Control) -> bool {
        control == Control::Output
    }

    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_owned()
    }

    fn answer(&self, control: Control, policy: &Policy, job: &Job) -> Answer {
        if job.leaves_out(control) {
            return Answer::Cannot(Reason::ABLATED.into());
        }
        match control {
            // The runner itself cuts what it passes on and keeps.
            Control::Output => match policy.resources.output_bytes {
                Some(bytes) => {
                    Answer::Intends(Intent::by("runner-cap").limited(format!("{bytes} bytes")))
                }
                None => Answer::Cannot(Reason::POLICY_SETS_NO_LIMIT.into()),
            },
            Control::Network
            | Control::Filesystem
            | Control::Process
            | Control::Environment
            | Control::Privilege
            | Control::Memory
            | Control::Processes
            | Control::Syscalls
            | Control::Cpu
            | Control::Timeout
            | Control::Devices
            | Control::User
            | Control::Ipc
            | Control::Descriptors
            | Control::Terminal
            | Control::Files
            | Control::Disk => Answer::Cannot(Reason::NO_ISOLATION.into()),
        }
    }

    fn cwd(&self, _: &Tree, job: &Job) -> PathBuf {
        launch::callers_folder(job)
    }

    fn begin(&self, _: &Policy, _: &Job, streams: Streams) -> Result<Begun, LaunchError> {
        launch::begin(0, streams, |_| Ok(()))
    }

    fn launch(
        &self,
        plan: &Plan,
        begun: Result<Begun, LaunchError>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Launch, LaunchError> {
        // What is done for order's sake, and is nothing of the workload's to measure a sandbox by.
        let spec = Spec {
            session: !plan.job.leaves_out(Control::Terminal),
            close_descriptors: !plan.job.leaves_out(Control::Descriptors),
            leaves_tree: plan.job.leaves_out(Control::Process),
            ..launch::bare(plan, launch::program(plan))
        };
        let init = launch::build(
            &mut begun?,
            &spec,
            (&[], plan.job.caller_terminal.as_deref()),
            meanwhile,
            |_, _| {},
        )?;
        let mut effect = Effect::new(launch::found(plan, init.report.program.as_ref()));
        effect.launch = vec!["native".to_owned()];
        effect.key_reachable = true;
        effect.host_uid = super::read_back::uid_of(init.pid);
        if let Some(intent) = plan.intended.get(&Control::Output) {
            effect.declare(intent.declare(Control::Output));
        }
        Ok(Launch {
            effect,
            init: init.pidfd,
            init_pid: init.pid,
            first: None,
            control: init.control,
            terminal: init.terminal,
            workspace: None,
            leaving: None,
            group: None,
            held: Vec::new(),
        })
    }
}
