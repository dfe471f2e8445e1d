//! What is in an image, as a CycloneDX document: crates that were really compiled for the target (from what cargo said
//! while it built), Go modules that are really linked (from what helm says of itself), and the data that we add.
//!
//! No time and no random number: the same image has the same document.

use std::collections::BTreeMap;

use forge_core::digest::Digest;
use forge_core::oci::Architecture;
use serde_json::{Map, Value, json};

/// Its media type.
pub const MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// Why there is no list of parts.
#[derive(Debug, thiserror::Error)]
pub enum SbomError {
    /// What cargo said is not understood.
    #[error("failed to read what cargo said: {0}")]
    Cargo(#[from] serde_json::Error),
    /// Cargo built a package that it does not describe.
    #[error("cargo built `{0}`, which its metadata does not describe")]
    Unknown(String),
    /// Nothing was built for the target.
    #[error("cargo compiled nothing for `{0}`")]
    Nothing(String),
    /// Helm does not say what it is made from.
    #[error("`go version -m` says nothing of helm's modules")]
    Go,
}

/// What a part is, in the words of CycloneDX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program.
    Application,
    /// Something that is linked into one.
    Library,
    /// Neither.
    Data,
}

/// A part of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: Kind,
    /// Its package URL, which is its identity here.
    pub purl: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence as an SPDX expression, where it is known.
    pub license: Option<String>,
    /// The SHA-256 of its archive or its file, in hex, where it is known.
    pub sha256: Option<String>,
    /// The checksum of a Go module.
    pub go_sum: Option<String>,
}

impl Part {
    /// A part of which little is known.
    pub fn new(kind: Kind, registry: &str, name: &str, version: &str) -> Self {
        let purl = format!("pkg:{registry}/{name}@{}", version.replace('+', "%2B"));
        let (name, version) = (name.to_owned(), version.to_owned());
        Self { kind, purl, name, version, license: None, sha256: None, go_sum: None }
    }

    fn json(&self) -> Value {
        let kind = match self.kind {
            Kind::Application => "application",
            Kind::Library => "library",
            Kind::Data => "data",
        };
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("type", json!(kind));
        set("bom-ref", json!(self.purl));
        set("purl", json!(self.purl));
        set("name", json!(self.name));
        set("version", json!(self.version));
        if let Some(license) = &self.license {
            set("licenses", json!([{"expression": license}]));
        }
        if let Some(sha256) = &self.sha256 {
            set("hashes", json!([{"alg": "SHA-256", "content": sha256}]));
        }
        if let Some(sum) = &self.go_sum {
            set("properties", json!([{"name": "go:sum", "value": sum}]));
        }
        Value::Object(fields)
    }
}

/// The crates that were compiled for a target and linked into the program: not those that only ran while it was built.
///
/// `messages` is what `cargo build --message-format json` said, `metadata` what `cargo metadata` says, `lock` is
/// `Cargo.lock`.
///
/// # Errors
/// When cargo said something else than expected.
pub fn crates(messages: &str, metadata: &str, lock: &str, target: &str) -> Result<Vec<Part>, SbomError> {
    let metadata: Value = serde_json::from_str(metadata)?;
    let packages: BTreeMap<&str, &Value> = list(&metadata, "packages")
        .iter()
        .filter_map(|package| Some((package.get("id")?.as_str()?, package)))
        .collect();
    let checksums = checksums(lock);
    let mut parts = BTreeMap::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Value = serde_json::from_str(line)?;
        if text(&message, "reason") != "compiler-artifact" || !is_linked(&message, target) {
            continue;
        }
        let id = text(&message, "package_id");
        let package = packages.get(id).ok_or_else(|| SbomError::Unknown(id.to_owned()))?;
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut part = Part::new(Kind::Library, "cargo", name, version);
        part.license = package.get("license").and_then(Value::as_str).map(|license| license.replace('/', " OR "));
        part.sha256 = checksums.get(&(name, version)).map(|checksum| (*checksum).to_owned());
        parts.insert(part.purl.clone(), part);
    }
    if parts.is_empty() {
        return Err(SbomError::Nothing(target.to_owned()));
    }
    Ok(parts.into_values().collect())
}

/// Whether cargo put the artifact beside the target's others, and it is neither a macro nor a script of the build.
fn is_linked(message: &Value, target: &str) -> bool {
    let built = message.get("target").map(|target| list(target, "kind")).unwrap_or_default();
    let only_built = ["proc-macro", "custom-build"];
    let mut files = list(message, "filenames").iter().filter_map(Value::as_str);
    !built.iter().filter_map(Value::as_str).any(|kind| only_built.contains(&kind))
        && files.any(|file| file.split('/').any(|folder| folder == target))
}

/// The checksums of a lock file by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let value = package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
            value.and_then(|value| value.strip_suffix('"'))
        };
        if let (Some(name), Some(version), Some(checksum)) = (field("name"), field("version"), field("checksum")) {
            all.insert((name, version), checksum);
        }
    }
    all
}

/// The version of a crate in a lock file, and its checksum; the first one where there are several.
pub fn locked<'l>(lock: &'l str, name: &str) -> Option<(&'l str, &'l str)> {
    let found = checksums(lock).into_iter().find(|((found, _), _)| *found == name);
    found.map(|((_, version), checksum)| (version, checksum))
}

/// The modules that are linked into a Go program, and Go's own library, from what `go version -m` says of it. Its own
/// module is not among them.
///
/// # Errors
/// When it says nothing.
pub fn modules(said: &str) -> Result<Vec<Part>, SbomError> {
    let mut lines = said.lines();
    let go = lines.next().and_then(|first| first.rsplit_once(": go")).ok_or(SbomError::Go)?.1;
    let go = go.split_whitespace().next().unwrap_or_default();
    let mut parts = vec![Part::new(Kind::Library, "golang", "std", go)];
    for line in lines {
        let fields: Vec<&str> = line.trim_start_matches('\t').split('\t').collect();
        let (kind, part) = match fields.as_slice() {
            [kind, name, version, rest @ ..] => {
                let sum = rest.first().filter(|sum| !sum.is_empty()).map(|sum| (*sum).to_owned());
                (*kind, Part { go_sum: sum, ..Part::new(Kind::Library, "golang", name, version) })
            }
            _ => continue,
        };
        match kind {
            "dep" => parts.push(part),
            // What was put in the place of the one before.
            "=>" => {
                parts.pop();
                parts.push(part);
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// The document of an image.
pub fn document(image: &str, version: &str, architecture: Architecture, parts: &[Part]) -> Vec<u8> {
    let parts: BTreeMap<&str, Value> = parts.iter().map(|part| (part.purl.as_str(), part.json())).collect();
    let components: Vec<&Value> = parts.values().collect();
    let mut document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": image, "name": image, "version": version,
            "properties": [{"name": "oci:platform", "value": format!("linux/{architecture}")}],
        }},
        "components": components,
    });
    // Its number says nothing but what it holds.
    let digest = Digest::of(document.to_string().as_bytes());
    if let Value::Object(fields) = &mut document {
        fields.insert("serialNumber".to_owned(), json!(format!("urn:uuid:{}", uuid(&digest))));
    }
    document.sort_all_objects();
    format!("{document:#}\n").into_bytes()
}

/// A number in the form of a UUID of version 8, which is the one for numbers of one's own making.
fn uuid(digest: &Digest) -> String {
    let digits: Vec<char> = digest.short(32).chars().collect();
    let part = |from: usize, to: usize| digits.iter().skip(from).take(to - from).collect::<String>();
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "aarch64-unknown-linux-musl";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"ring\"\nversion = \"0.17.14\"\nsource = \"registry+x\"\nchecksum = \"a4689e\"\ndependencies = [\n \"cc\",\n]\n\n[[package]]\nname = \"forge\"\nversion = \"0.1.0\"\n";

    fn artifact(id: &str, kind: &str, file: &str) -> String {
        json!({
            "reason": "compiler-artifact", "package_id": id, "target": {"kind": [kind], "name": "x"},
            "filenames": [format!("/home/me/target/{file}")], "fresh": true,
        })
        .to_string()
    }

    fn metadata() -> String {
        let package = |id: &str, name: &str, version: &str, license: Option<&str>| {
            let mut package = json!({"id": id, "name": name, "version": version});
            package["license"] = json!(license);
            package
        };
        json!({"packages": [
            package("r#ring@0.17.14", "ring", "0.17.14", Some("Apache-2.0/ISC")),
            package("p#forge", "forge", "0.1.0", Some("MIT OR Apache-2.0")),
            package("r#cc@1.2.62", "cc", "1.2.62", None),
            package("r#serde_derive@1.0.0", "serde_derive", "1.0.0", None),
        ]})
        .to_string()
    }

    fn messages() -> String {
        let target = |file: &str| format!("{TARGET}/image/deps/{file}");
        [
            artifact("r#cc@1.2.62", "lib", "image/deps/libcc.rlib"),
            artifact("r#serde_derive@1.0.0", "proc-macro", "image/deps/libserde_derive.so"),
            artifact("r#ring@0.17.14", "custom-build", "image/build/ring/build-script-build"),
            artifact("r#ring@0.17.14", "lib", &target("libring.rlib")),
            artifact("p#forge", "lib", &target("libforge.rlib")),
            artifact("p#forge", "bin", &format!("{TARGET}/image/forge")),
            json!({"reason": "build-finished", "success": true}).to_string(),
        ]
        .join("\n")
    }

    #[test]
    fn only_what_was_compiled_for_the_target_is_a_part_of_it() {
        let parts = crates(&messages(), &metadata(), LOCK, TARGET).unwrap();
        let purls: Vec<&str> = parts.iter().map(|part| part.purl.as_str()).collect();
        assert_eq!(purls, ["pkg:cargo/forge@0.1.0", "pkg:cargo/ring@0.17.14"]);
        assert_eq!(parts[1].license.as_deref(), Some("Apache-2.0 OR ISC"));
        assert_eq!(parts[1].sha256.as_deref(), Some("a4689e"));
        assert_eq!(parts[0].sha256, None);
        assert!(matches!(
            crates(&messages(), &metadata(), LOCK, "x86_64-unknown-linux-musl"),
            Err(SbomError::Nothing(_))
        ));
        assert!(matches!(crates(&messages(), "{}", LOCK, TARGET), Err(SbomError::Unknown(_))));
        assert_eq!(locked(LOCK, "ring"), Some(("0.17.14", "a4689e")));
        assert_eq!(locked(LOCK, "forge"), None);
    }

    #[test]
    fn modules_are_those_that_the_program_names_and_what_replaces_them() {
        let said = "/tmp/helm: go1.26.8 X:nocoverageredesign\n\tpath\thelm.sh/helm/v3/cmd/helm\n\tmod\thelm.sh/helm/v3\t(devel)\t\n\tdep\texample.com/a\tv1.0.0+incompatible\th1:aaa=\n\tdep\texample.com/b\tv1.0.0\n\t=>\texample.com/c\tv2.0.0\th1:ccc=\n\tbuild\tGOOS=linux\n";
        let parts = modules(said).unwrap();
        let seen: Vec<(&str, Option<&str>)> =
            parts.iter().map(|part| (part.purl.as_str(), part.go_sum.as_deref())).collect();
        assert_eq!(
            seen,
            [
                ("pkg:golang/std@1.26.8", None),
                ("pkg:golang/example.com/a@v1.0.0%2Bincompatible", Some("h1:aaa=")),
                ("pkg:golang/example.com/c@v2.0.0", Some("h1:ccc=")),
            ]
        );
        assert!(matches!(modules("helm: not executable file"), Err(SbomError::Go)));
    }

    #[test]
    fn a_document_is_sorted_has_no_time_and_a_number_of_its_content() {
        let part = |name: &str| Part::new(Kind::Library, "cargo", name, "1.0.0");
        let mut own = Part::new(Kind::Application, "cargo", "forge", "0.1.0");
        own.sha256 = Some("00".repeat(32));
        let document = |parts: &[Part]| document("forge/plugin", "0.1.0", Architecture::Arm64, parts);
        let bytes = document(&[part("b"), own.clone(), part("a")]);
        assert_eq!(bytes, document(&[part("a"), part("b"), own.clone()]));
        assert_ne!(bytes, document(&[part("a"), own.clone()]));
        let read: Value = serde_json::from_slice(&bytes).unwrap();
        let names: Vec<&str> =
            read["components"].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "forge"]);
        assert_eq!(read["components"][2]["hashes"][0]["alg"], "SHA-256");
        assert_eq!(read["metadata"].get("timestamp"), None);
        let number = read["serialNumber"].as_str().unwrap().strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<usize> = number.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(number.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{number}");
    }
}
