//! `sexton completions` and `sexton man`: made from the same definitions that commands are read by.

use std::{fs, path::PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

use super::{exit::Failure, io::Io};

/// The name of the command.
const NAME: &str = "sexton";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  sexton completions bash > ~/.local/share/bash-completion/completions/sexton
  sexton completions zsh > \"${fpath[1]}/_sexton\"
  sexton completions fish > ~/.config/fish/completions/sexton.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  sexton man --out ~/.local/share/man/man1
  sexton man | man -l -

Without --out the page of sexton itself is written to stdout; with it, a page for every
command, such as sexton-ls.1, into that folder.";

/// Arguments of `sexton completions`.
#[derive(Args, Clone, Debug)]
pub(super) struct CompletionsArgs {
    /// For this shell
    shell: Shell,
}

/// Arguments of `sexton man`.
#[derive(Args, Clone, Debug)]
pub(super) struct ManArgs {
    /// Write a page for every command into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes what a shell completes by.
pub(super) fn completions(mut command: Command, args: &CompletionsArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    // Into memory first: the generator takes a writer that fails for a bug of its own.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, NAME, &mut script);
    Ok(io.out.write_all(&script)?)
}

/// Writes manual pages.
pub(super) fn man(command: Command, args: &ManArgs, io: &mut Io<'_>) -> Result<(), Failure> {
    let Some(out) = &args.out else { return Ok(clap_mangen::Man::new(command).render(&mut *io.out)?) };
    fs::create_dir_all(out)
        .and_then(|()| clap_mangen::generate_to(command, out))
        .map_err(|error| Failure::Failed(format!("cannot write manual pages to {}: {error}", out.display())))
}
