//! The `sexton` command.

fn main() -> std::process::ExitCode {
    sexton::cli::main()
}
