//! Everything that a sandbox runs, made once into the user's cache.
//!
//! Each thing is an entry of the cache, named by what it is made from; what is there is not looked at again, so a build with
//! nothing to do takes milliseconds. One thing is built at a time, and what is finished stays when a later one fails.

mod base;
mod chart;
pub mod debian;
mod go;
pub mod image;
mod layer;
pub mod progress;
mod registry;
mod run;
mod rust;
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use forge_core::digest::Digest;

use self::progress::{Progress, Step};
pub use self::registry::Image;
use self::run::Site;
use crate::cache::{self, Cache, CacheError, Key};
use crate::recipe::{self, Module, Program, RecipeError, Recipes};

/// How long an entry that nobody used is kept: longer than a branch with another version of something usually lives.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Why something could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(CacheError),
    /// This build of Forge is faulty.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// Another system or processor.
    #[error("the sandbox runs on Linux on amd64 or arm64, not on {os} on {architecture}")]
    Platform {
        /// The system.
        os: &'static str,
        /// The processor.
        architecture: &'static str,
    },
    /// Asked for one thing that there is not.
    #[error("there is no component `{name}`; there are {}", .known.join(", "))]
    UnknownComponent {
        /// What was asked for.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A program that is needed is not installed.
    #[error("`{program}` is not installed")]
    MissingProgram {
        /// Which.
        program: &'static str,
        /// How to get it.
        help: &'static str,
    },
    /// The compiler is too old.
    #[error("Go {found} is installed, and {needed} or later is needed")]
    OldGo {
        /// What is installed.
        found: String,
        /// What is needed.
        needed: String,
    },
    /// The compiler lacks the standard library for static binaries.
    #[error("Rust's standard library for `{target}` is not installed")]
    MissingTarget {
        /// For which target.
        target: String,
    },
    /// A module could not be downloaded.
    #[error("failed to download the Go module `{module}@{version}`: {reason}")]
    Download {
        /// Which.
        module: String,
        /// Which version of it.
        version: String,
        /// What Go said.
        reason: String,
    },
    /// A module is not the one that was recorded.
    #[error("the archive of `{module}@{version}` has the checksum `{found}`, not `{expected}` as recorded")]
    Checksum {
        /// Which.
        module: String,
        /// Which version of it.
        version: String,
        /// What was recorded.
        expected: String,
        /// What was downloaded.
        found: String,
    },
    /// A program could not be started or asked.
    #[error("failed to run `{program}`: {error}")]
    Start {
        /// Which.
        program: String,
        /// Why not.
        error: io::Error,
    },
    /// A program failed.
    #[error("failed to build `{step}`: `{program}` ended with {status}{tail}\nall that it said is in `{}`", .log.display())]
    Failed {
        /// What was built.
        step: String,
        /// Which.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said last, each line after a line break.
        tail: String,
        /// Where all that it said is.
        log: PathBuf,
    },
    /// There is too little room to begin.
    #[error(
        "`{}` has {} MiB of free disk, and about {} MiB are needed for what is not built yet",
        .path.display(), .free, .needed
    )]
    Space {
        /// Where.
        path: PathBuf,
        /// How many mebibytes are free.
        free: u64,
        /// How many are needed.
        needed: u64,
    },
    /// The disk got full on the way.
    #[error("the disk that holds `{}` is full", .path.display())]
    DiskFull {
        /// What was to be written.
        path: PathBuf,
    },
    /// A file could not be read, written, copied, linked or removed.
    #[error("failed to {act} `{}`: {error}", .path.display())]
    File {
        /// What was tried.
        act: &'static str,
        /// With what.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// An image could not be pushed into the registry's storage.
    #[error(transparent)]
    Push(#[from] image::PushError),
    /// The registry that is filled while building does not work.
    #[error("failed to fill the registry: {reason}")]
    Registry {
        /// Why.
        reason: String,
    },
    /// An image came out of the registry as another one.
    #[error("the registry holds `{image}` as `{found}`, not as `{expected}`")]
    Pushed {
        /// Which.
        image: String,
        /// Its digest.
        expected: Digest,
        /// The digest it has there.
        found: Digest,
    },
}

impl From<CacheError> for BuildError {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::DiskFull { path } => Self::DiskFull { path },
            other @ (CacheError::NoPlace | CacheError::Touch { .. }) => Self::Cache(other),
        }
    }
}

impl BuildError {
    fn file(act: &'static str, path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        if cache::is_disk_full(&error) { Self::DiskFull { path } } else { Self::File { act, path, error } }
    }

    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::MissingProgram { help, .. } => (*help).to_owned(),
            Self::OldGo { needed, .. } => format!("install Go {needed} or later, https://go.dev/doc/install"),
            Self::MissingTarget { target } => {
                format!("install Rust by https://rustup.rs and run `rustup target add {target}`")
            }
            Self::Download { .. } => {
                "Go modules come from the proxy that `go env GOPROXY` names: is it reachable?".to_owned()
            }
            Self::Checksum { .. } => {
                "somebody changed what is published, or the proxy is not to be trusted: `go clean -modcache` and another \
                 `GOPROXY` tell which"
                    .to_owned()
            }
            Self::Space { .. } | Self::DiskFull { .. } => {
                "free some disk, or set `FORGE_CACHE` to a folder on another one; what is built stays".to_owned()
            }
            Self::Push(image::PushError::MissingSkopeo) => "sudo apt-get install skopeo".to_owned(),
            Self::Failed { .. } | Self::Registry { .. } | Self::Start { .. } => {
                "run it again: what is built stays, and it goes on from here".to_owned()
            }
            Self::Cache(_)
            | Self::Recipe(_)
            | Self::Platform { .. }
            | Self::UnknownComponent { .. }
            | Self::File { .. }
            | Self::Push(_)
            | Self::Pushed { .. } => return None,
        })
    }
}

/// Where everything is.
#[derive(Debug, Clone)]
pub struct Built {
    /// The folder of Kubernetes' programs and etcd, by their names.
    pub kubernetes: PathBuf,
    /// The folder of the sandbox's own services, by their names.
    pub services: PathBuf,
    /// The program.
    pub helm: PathBuf,
    /// The program.
    pub kustomize: PathBuf,
    /// The program.
    pub kwok: PathBuf,
    /// The program, a client of Argo CD.
    pub argocd: PathBuf,
    /// The program, a client of Argo Workflows.
    pub argo: PathBuf,
    /// The folder of charts, each in a folder of its name.
    pub charts: PathBuf,
    /// The storage that a sandbox's registry starts with.
    pub registry: PathBuf,
    /// What is in it. Empty as long as the registry is not built, which is so after a build of one component.
    pub images: Vec<Image>,
}

impl Built {
    /// An image by the name of its recipe.
    pub fn image(&self, name: &str) -> Result<&Image, BuildError> {
        self.images.iter().find(|image| image.name == name).ok_or_else(|| BuildError::UnknownComponent {
            name: name.to_owned(),
            known: self.images.iter().map(|image| image.name.clone()).collect(),
        })
    }
}

/// What a thing is and how it is made.
enum Kind<'r> {
    Module(&'r Module),
    Program(&'r Program),
    Base(String),
    Charts,
    Image(&'r recipe::Image),
    Registry,
}

/// A thing that is built.
struct Thing<'r> {
    name: String,
    version: Option<&'r str>,
    key: Key,
    kind: Kind<'r>,
    /// What it is made from.
    needs: Vec<String>,
    /// Disk that it takes.
    mebibytes: u64,
}

/// The name under which an image is built: what is in it may have the same.
fn image_name(name: &str) -> String {
    format!("{name}-image")
}

/// All things, each after those that it is made from.
fn things(recipes: &Recipes) -> Result<Vec<Thing<'_>>, BuildError> {
    let mut things: Vec<Thing<'_>> = Vec::new();
    for module in &recipes.modules {
        let (version, digest) = (Some(module.version.as_str()), go::made_from(module));
        let (kind, mebibytes) = (Kind::Module(module), module.mebibytes);
        let key = Key::new(&module.name, version, &digest);
        things.push(Thing { name: module.name.clone(), version, key, kind, needs: Vec::new(), mebibytes });
    }
    for program in &recipes.programs {
        let version = Some(program.version.as_str());
        let key = Key::new(&program.name, version, &rust::made_from(program));
        let kind = Kind::Program(program);
        things.push(Thing { name: program.name.clone(), version, key, kind, needs: Vec::new(), mebibytes: 5 });
    }
    let suite = base::suite(&recipes.base);
    let key = Key::new("base", Some(&suite), &base::made_from(&recipes.base, &suite));
    let (kind, mebibytes) = (Kind::Base(suite), recipes.base.mebibytes);
    things.push(Thing { name: "base".to_owned(), version: None, key, kind, needs: Vec::new(), mebibytes });

    let needs = chart::needs(&recipes.charts);
    let made_from = recipe::made_from(chart::FORMAT, &recipes.charts, &[], &keys("charts", &needs, &things)?);
    let key = Key::new("charts", None, &made_from);
    things.push(Thing { name: "charts".to_owned(), version: None, key, kind: Kind::Charts, needs, mebibytes: 5 });

    let mut all = vec!["services".to_owned(), "base".to_owned()];
    for image in &recipes.images {
        let (name, needs) = (image_name(&image.name), image::needs(image));
        let made_from = recipe::made_from(image::FORMAT, image, &[], &keys(&name, &needs, &things)?);
        let version = image.version.as_deref();
        let key = Key::new(&name, version, &made_from);
        all.push(name.clone());
        things.push(Thing { name, version, key, kind: Kind::Image(image), needs, mebibytes: 80 });
    }
    let made_from = recipe::made_from(registry::FORMAT, &(), &[], &keys("registry", &all, &things)?);
    let (name, key) = ("registry".to_owned(), Key::new("registry", None, &made_from));
    things.push(Thing { name, version: None, key, kind: Kind::Registry, needs: all, mebibytes: 1000 });
    Ok(things)
}

/// The keys of what a thing is made from.
fn keys<'t>(recipe: &str, needs: &[String], things: &'t [Thing<'_>]) -> Result<Vec<&'t str>, RecipeError> {
    let key = |name: &String| things.iter().find(|thing| thing.name == *name).map(|thing| thing.key.as_str());
    let unknown = |name: &String| RecipeError::Unknown { recipe: recipe.to_owned(), name: name.clone() };
    needs.iter().map(|name| key(name).ok_or_else(|| unknown(name))).collect()
}

/// Where things are from which others are made.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    entries: BTreeMap<&'a str, PathBuf>,
}

impl<'a> Parts<'a> {
    fn of(things: &'a [Thing<'_>], cache: &Cache) -> Self {
        Self { entries: things.iter().map(|thing| (thing.name.as_str(), cache.entry(&thing.key))).collect() }
    }

    /// The place of `component/path`.
    pub(crate) fn path(&self, recipe: &str, from: &str) -> Result<PathBuf, RecipeError> {
        let (name, path) = recipe::split(from);
        let unknown = || RecipeError::Unknown { recipe: recipe.to_owned(), name: from.to_owned() };
        let entry = self.entries.get(name).ok_or_else(unknown)?;
        Ok(if path.is_empty() { entry.clone() } else { entry.join(path) })
    }
}

/// Builds what is not there yet: everything, or one component and what it is made from. Says where everything is.
///
/// Programs that it starts die with the thread that calls it.
pub fn ensure(cache: &Cache, only: Option<&str>, progress: &mut dyn Progress) -> Result<Built, BuildError> {
    let (os, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    if os != "linux" || !matches!(architecture, "x86_64" | "aarch64") {
        return Err(BuildError::Platform { os, architecture });
    }
    let recipes = Recipes::embedded()?;
    let things = things(&recipes)?;
    let wanted = wanted(&things, only)?;
    let parts = Parts::of(&things, cache);
    let mut go: Option<go::Go> = None;
    build_missing(cache, &wanted, progress, &mut |missing| {
        if missing.iter().any(|thing| matches!(thing.kind, Kind::Module(_))) {
            go = Some(go::Go::find(&recipes.go)?);
        }
        let needed = missing.iter().map(|thing| thing.mebibytes).sum();
        let build_cache = go.as_ref().and_then(go::Go::build_cache);
        [Some(cache.root()), build_cache].into_iter().flatten().try_for_each(|path| check_space(path, needed))?;
        let go = go.take();
        let (recipes, parts) = (&recipes, &parts);
        Ok(Box::new(move |thing, mut site| match (&thing.kind, &go) {
            (Kind::Module(module), Some(go)) => go.build(module, &mut site),
            (Kind::Module(_), None) => Err(go::missing()),
            (Kind::Program(program), _) => rust::build(program, &mut site),
            (Kind::Base(suite), _) => base::build(&recipes.base, suite, &mut site),
            (Kind::Charts, _) => chart::build(&recipes.charts, parts, site.folder),
            (Kind::Image(image), _) => image::build(image, parts, site.folder),
            (Kind::Registry, _) => registry::build(&recipes.images, parts, &mut site),
        }))
    })?;

    let path = |from: &str| parts.path("built", from);
    let registry = path("registry")?;
    Ok(Built {
        kubernetes: path("kubernetes/bin")?,
        services: path("services/bin")?,
        helm: path("helm/bin/helm")?,
        kustomize: path("kustomize/bin/kustomize")?,
        kwok: path("kwok/bin/kwok")?,
        argocd: path("argo-cd/bin/argocd")?,
        argo: path("argo-workflows/bin/argo")?,
        charts: path("charts")?,
        images: if registry.is_dir() { registry::images(&registry)? } else { Vec::new() },
        registry: registry::storage(&registry),
    })
}

/// Where a component is, if it is built. Builds nothing.
pub fn find(cache: &Cache, component: &str) -> Result<Option<PathBuf>, BuildError> {
    let recipes = Recipes::embedded()?;
    let things = things(&recipes)?;
    let thing = things.iter().find(|thing| thing.name == component).ok_or_else(|| unknown(component, &things))?;
    Ok(cache.has(&thing.key).then(|| cache.entry(&thing.key)))
}

fn unknown(name: &str, things: &[Thing<'_>]) -> BuildError {
    let known = things.iter().map(|thing| thing.name.clone()).collect();
    BuildError::UnknownComponent { name: name.to_owned(), known }
}

/// What is to be there in the end, in the order of building.
fn wanted<'t, 'r>(things: &'t [Thing<'r>], only: Option<&str>) -> Result<Vec<&'t Thing<'r>>, BuildError> {
    let Some(only) = only else { return Ok(things.iter().collect()) };
    let mut names = vec![only];
    let mut wanted = Vec::new();
    // Backwards, because things come after those that they are made from.
    for thing in things.iter().rev() {
        if names.contains(&thing.name.as_str()) {
            names.extend(thing.needs.iter().map(String::as_str));
            wanted.push(thing);
        }
    }
    wanted.reverse();
    if wanted.is_empty() {
        return Err(unknown(only, things));
    }
    Ok(wanted)
}

/// Builds one thing.
type Build<'a> = Box<dyn FnMut(&Thing<'_>, Site<'_>) -> Result<(), BuildError> + 'a>;

/// Builds those that are missing, one after the other. What it takes is looked for once, and only if something is missing.
fn build_missing<'a>(
    cache: &Cache,
    wanted: &[&Thing<'_>],
    progress: &mut dyn Progress,
    prepare: &mut dyn FnMut(&[&Thing<'_>]) -> Result<Build<'a>, BuildError>,
) -> Result<(), BuildError> {
    let missing = || wanted.iter().copied().filter(|thing| !cache.has(&thing.key)).collect::<Vec<_>>();
    wanted.iter().for_each(|thing| cache.used(&thing.key));
    if missing().is_empty() {
        return Ok(());
    }
    let lock = cache.lock(|holder| progress.waiting(holder))?;
    // Asked again: who held the lock before may have built it all.
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let mut build = prepare(&missing)?;
    let started = Instant::now();
    for (at, thing) in missing.iter().enumerate() {
        progress.started(Step { name: &thing.name, version: thing.version, number: at + 1, total: missing.len() });
        let log = cache.log(&thing.key);
        let _ = std::fs::remove_file(&log);
        let built = lock.begin(&thing.key).map_err(BuildError::from).and_then(|unfinished| {
            build(thing, Site { step: &thing.name, folder: unfinished.path(), log: &log, progress })?;
            Ok(unfinished.publish()?)
        });
        if let Err(error) = built {
            progress.failed();
            return Err(error);
        }
        progress.finished();
        let _ = std::fs::remove_file(&log);
    }
    progress.done(missing.len(), started.elapsed());
    match lock.forget(KEPT)? {
        0 => {}
        1 => progress.note("removed 1 thing that was not used for a month"),
        many => progress.note(&format!("removed {many} things that were not used for a month")),
    }
    Ok(())
}

/// Refuses to begin what would fill the disk.
fn check_space(path: &Path, needed: u64) -> Result<(), BuildError> {
    // The folder itself may not be there yet.
    let Some(place) = path.ancestors().find(|path| path.is_dir()) else { return Ok(()) };
    // A file system that does not say is not refused.
    let Ok(disk) = nix::sys::statvfs::statvfs(place) else { return Ok(()) };
    let free = disk.blocks_available().saturating_mul(disk.fragment_size()) >> 20;
    if free < needed { Err(BuildError::Space { path: path.to_owned(), free, needed }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::progress::Silent;
    use super::*;

    fn with_things(test: impl FnOnce(&[Thing<'_>])) {
        test(&things(&Recipes::embedded().unwrap()).unwrap());
    }

    #[test]
    fn every_thing_comes_after_what_it_is_made_from_and_keys_differ() {
        with_things(|things| {
            for (at, thing) in things.iter().enumerate() {
                for need in &thing.needs {
                    assert!(things[..at].iter().any(|earlier| earlier.name == *need), "{} {need}", thing.name);
                }
                assert!(things[..at].iter().all(|earlier| earlier.key != thing.key));
                assert!(thing.key.as_str().starts_with(&thing.name));
            }
        });
    }

    #[test]
    fn a_change_of_a_part_changes_the_keys_of_all_that_is_made_from_it_and_of_nothing_else() {
        let mut recipes = Recipes::embedded().unwrap();
        let key = |things: &[Thing<'_>], name: &str| things.iter().find(|t| t.name == name).unwrap().key.clone();
        let names = ["helm", "argocd-image", "registry", "sample", "redis-image", "charts"];
        let before = names.map(|name| key(&things(&recipes).unwrap(), name));
        recipes.modules.iter_mut().find(|module| module.name == "helm").unwrap().version = "v3.22.1".into();
        let after = names.map(|name| key(&things(&recipes).unwrap(), name));
        let changed: Vec<_> = (0..names.len()).filter(|at| before[*at] != after[*at]).map(|at| names[at]).collect();
        assert_eq!(changed, ["helm", "argocd-image", "registry"]);
    }

    #[test]
    fn one_component_is_built_with_what_it_is_made_from() {
        with_things(|things| {
            let names = |only| -> Vec<String> {
                wanted(things, Some(only)).unwrap().iter().map(|thing| thing.name.clone()).collect()
            };
            assert_eq!(names("helm"), ["helm"]);
            assert_eq!(names("sample-image"), ["sample", "sample-image"]);
            assert_eq!(names("redis-image"), ["base", "redis-image"]);
            let unknown = wanted(things, Some("helmet")).err().unwrap().to_string();
            assert!(unknown.starts_with("there is no component `helmet`; there are kubernetes, services"), "{unknown}");
        });
    }

    /// Builds with a recorder in place of compilers.
    fn build(cache: &Cache, fail: Option<&str>, built: &Mutex<Vec<String>>) -> Result<(), BuildError> {
        let recipes = Recipes::embedded().unwrap();
        let things = things(&recipes).unwrap();
        let wanted = wanted(&things, Some("sample-image")).unwrap();
        build_missing(cache, &wanted, &mut Silent, &mut |_| {
            Ok(Box::new(|thing, site| {
                tree::write(&site.folder.join("file"), thing.name.as_bytes())?;
                if fail == Some(thing.name.as_str()) {
                    return Err(BuildError::DiskFull { path: site.folder.to_owned() });
                }
                built.lock().unwrap().push(thing.name.clone());
                Ok(())
            }))
        })
    }

    #[test]
    fn what_was_finished_stays_and_an_interrupted_build_goes_on_from_there() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let built = Mutex::default();
        assert!(matches!(build(&cache, Some("sample-image"), &built), Err(BuildError::DiskFull { .. })));
        let entries = || {
            let names =
                std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.filter(|name| name.contains("sample")).collect();
            names.sort();
            names
        };
        assert_eq!(entries().len(), 1);
        build(&cache, None, &built).unwrap();
        build(&cache, Some("sample"), &built).unwrap();
        assert_eq!(*built.lock().unwrap(), ["sample", "sample-image"]);
        assert_eq!(entries().len(), 2);
    }

    #[test]
    fn asking_where_a_component_is_builds_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        assert!(find(&cache, "sample").unwrap().is_none());
        assert!(matches!(find(&cache, "helmet"), Err(BuildError::UnknownComponent { .. })));
        build(&cache, None, &Mutex::default()).unwrap();
        assert!(find(&cache, "sample").unwrap().unwrap().join("file").is_file());
        assert!(find(&cache, "helm").unwrap().is_none());
    }

    #[test]
    fn two_builds_at_once_build_everything_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().to_owned());
        let built = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| build(&cache, None, &built).unwrap());
            }
        });
        assert_eq!(*built.lock().unwrap(), ["sample", "sample-image"]);
    }

    #[test]
    fn a_disk_with_too_little_room_is_refused_before_anything_is_built() {
        let folder = tempfile::tempdir().unwrap();
        let there_soon = folder.path().join("not/there/yet");
        check_space(&there_soon, 1).unwrap();
        let error = check_space(&there_soon, u64::MAX).unwrap_err();
        assert!(matches!(error, BuildError::Space { .. }));
        assert!(error.hint().unwrap().contains("FORGE_CACHE"));
    }

    #[test]
    fn a_full_disk_is_the_same_error_wherever_it_is_met() {
        let full = || io::Error::from_raw_os_error(nix::errno::Errno::ENOSPC as i32);
        let path = Path::new("/x");
        assert!(matches!(BuildError::file("write", path, full()), BuildError::DiskFull { .. }));
        assert!(matches!(BuildError::from(CacheError::new("write", path, full())), BuildError::DiskFull { .. }));
    }
}
