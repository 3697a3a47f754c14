//! `runner`: see the library.
#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

fn run() -> ! {
    if runner::init::is_requested() {
        runner::init::run();
    }
    std::process::exit(i32::from(runner::cli::main()))
}

/// Called by the C library. Other C libraries than GNU's do not hand arguments to a program without Rust's own start.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(
    unsafe_code,
    reason = "the name is the C library's; there is no other function of this name"
)]
#[unsafe(no_mangle)]
extern "C" fn main() -> std::ffi::c_int {
    runner::sys::start::start();
    run()
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn main() {
    run()
}
