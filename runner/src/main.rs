//! `runner`: see the library.
#![cfg_attr(all(not(test), target_os = "linux", target_env = "gnu"), no_main)]

fn run() -> ! {
    if runner::init::is_requested() {
        runner::init::run();
    }
    std::process::exit(i32::from(runner::cli::main()))
}

#[cfg(all(not(test), target_os = "linux", target_env = "gnu"))]
runner::entry!(run);

#[cfg(any(test, not(all(target_os = "linux", target_env = "gnu"))))]
fn main() {
    run()
}
