//! `verify`: see the library.

fn main() -> std::process::ExitCode {
    verify::cli::main()
}
