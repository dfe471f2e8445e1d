//! Static binaries from single Rust files, by plain `rustc`.

use std::path::{Path, PathBuf};

use super::run::{self, Site};
use super::{BuildError, tree};
use crate::recipe::{self, Program, RecipeError};

/// Changes when the same recipe gives something else.
const FORMAT: u32 = 1;

/// What a program's entry is made from.
pub(crate) fn made_from(program: &Program) -> forge_core::digest::Digest {
    let source = recipe::file(&program.source).unwrap_or_default();
    recipe::made_from(FORMAT, program, &[(&program.source, source)], &[])
}

/// Makes the entry of a program: `bin/<name>`.
pub(crate) fn build(program: &Program, site: &mut Site<'_>) -> Result<(), BuildError> {
    let source = recipe::file(&program.source)
        .ok_or_else(|| RecipeError::Unknown { recipe: program.name.clone(), name: program.source.clone() })?;
    let rustc = find("rustc").ok_or(BuildError::MissingProgram {
        program: "rustc",
        help: "install Rust 1.87 or later, https://rustup.rs",
    })?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    ensure_target(&rustc, &target, site)?;

    // Its path would be in messages of panics; a name alone is the same everywhere.
    let main = site.folder.join("main.rs");
    tree::write(&main, source.as_bytes())?;
    tree::make(&site.folder.join("bin"))?;
    let mut command = run::command(&rustc);
    command.current_dir(site.folder).args(["--edition", "2024", "--crate-name", &program.name, "--target", &target]);
    command.args(["-C", "opt-level=z", "-C", "lto=fat", "-C", "codegen-units=1"]);
    command.args(["-C", "panic=abort", "-C", "strip=symbols"]);
    site.run(command.arg("-o").arg(format!("bin/{}", program.name)).arg("main.rs"))?;
    std::fs::remove_file(&main).map_err(|error| BuildError::file("remove", &main, error))
}

/// A program of the Rust toolchain, also where `rustup` puts it without changing `PATH`.
fn find(name: &str) -> Option<PathBuf> {
    let home = |variable: &str, folder: &str| std::env::var_os(variable).map(|path| Path::new(&path).join(folder));
    let further: Vec<_> = [home("CARGO_HOME", "bin"), home("HOME", ".cargo/bin")].into_iter().flatten().collect();
    run::find(name, &further)
}

/// Adds the target's standard library if it is missing and `rustup` is there.
fn ensure_target(rustc: &Path, target: &str, site: &mut Site<'_>) -> Result<(), BuildError> {
    let folder = site.folder;
    let present = || {
        // In the folder where the compiler will run: `rustup` looks for a toolchain file from there upwards.
        let mut command = run::command(rustc);
        run::ask(command.current_dir(folder).args(["--print", "target-libdir", "--target", target]))
            .is_ok_and(|folder| Path::new(folder.trim()).is_dir())
    };
    if present() {
        return Ok(());
    }
    if let Some(rustup) = find("rustup") {
        site.progress.doing("adding the target");
        site.run(run::command(&rustup).current_dir(folder).args(["target", "add", target]))?;
    }
    if present() { Ok(()) } else { Err(BuildError::MissingTarget { target: target.to_owned() }) }
}
