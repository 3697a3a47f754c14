//! `runner`: see the library.

fn main() -> std::process::ExitCode {
    if runner::init::is_requested() {
        runner::init::run();
    }
    runner::cli::main()
}
