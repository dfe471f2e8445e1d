//! References to images, read as containerd reads them: what is not written follows from Docker's rules.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;
use crate::name::clip;

/// A text that is no reference to an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{image}` is not a reference to an image: {why}")]
pub struct BadReference {
    /// The text, cut.
    pub image: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// A reference to an image, whole: `nginx` is `docker.io/library/nginx`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageReference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl ImageReference {
    /// The registry, with its port where it has one.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The repository inside the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag, where one is written.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The digest, where one is written.
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Registry and repository.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Whether it names one content for ever.
    pub fn is_pinned(&self) -> bool {
        self.digest.is_some()
    }

    /// The same image, fixed: the tag is gone, because it says nothing any more.
    #[must_use]
    pub fn pinned(&self, digest: &Digest) -> Self {
        Self { tag: None, digest: Some(digest.clone()), ..self.clone() }
    }
}

impl FromStr for ImageReference {
    type Err = BadReference;
    fn from_str(text: &str) -> Result<Self, BadReference> {
        let bad = |why| BadReference { image: clip(text), why };
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(bad("it is the identifier of an image, expected its name"));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => {
                let digest = digest.parse::<Digest>();
                (
                    rest,
                    Some(digest.map_err(|_| bad("its digest is not `sha256:` and 64 lower-case hexadecimal digits"))?),
                )
            }
            None => (text, None),
        };
        // What comes before the first slash is a registry only if nothing else can look like it.
        let is_registry = |first: &str| {
            first.contains(['.', ':']) || first == "localhost" || first.chars().any(|c| c.is_ascii_uppercase())
        };
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if is_registry(first) => (first, path),
            _ => (DOCKER, rest),
        };
        let registry = if registry == "index.docker.io" { DOCKER } else { registry };
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if !is_host(registry) {
            return Err(bad("its registry is not a host name with or without a port"));
        }
        if !repository.split('/').all(is_component) {
            return Err(bad(
                "its repository has parts that are not lower-case letters, digits, `.`, `_` and `-` between them",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(bad("its tag is not 1 to 128 letters, digits, `_`, `.` and `-`"));
        }
        let official = registry == DOCKER && !repository.contains('/');
        let repository = if official { format!("library/{repository}") } else { repository.to_owned() };
        if registry.len() + 1 + repository.len() > LONGEST {
            return Err(bad("its name has more than 255 characters"));
        }
        Ok(Self { registry: registry.to_owned(), repository, tag: tag.map(str::to_owned), digest })
    }
}

/// The registry of names that have none.
const DOCKER: &str = "docker.io";
/// Characters of registry and repository together.
const LONGEST: usize = 255;

fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            if address.is_empty() || !address.chars().all(|c| c.is_ascii_hexdigit() || c == ':') {
                return false;
            }
            (None, if port.is_empty() { None } else { Some(port.strip_prefix(':').unwrap_or_default()) })
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let label = |label: &str| {
        edge(label.chars().next())
            && edge(label.chars().next_back())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    host.is_none_or(|host| host.split('.').all(label))
        && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
}

/// Letters and digits, between which there is one point, one or two underscores, or any number of dashes.
fn is_component(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.split(alphanumeric).all(|run| matches!(run, "." | "_" | "__") || run.chars().all(|c| c == '-'))
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(word) && text.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> String {
        text.parse::<ImageReference>().map_or_else(|error| error.to_string(), |image| image.to_string())
    }

    #[test]
    fn what_is_not_written_follows_from_the_rules_of_docker() {
        let digest = Digest::of(b"x");
        // The table of the reference library's own tests, and what charts write.
        for (written, meant) in [
            ("nginx", "docker.io/library/nginx"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("docker.io/nginx", "docker.io/library/nginx"),
            ("index.docker.io/nginx", "docker.io/library/nginx"),
            ("docker.io/library/nginx", "docker.io/library/nginx"),
            ("bitnami/redis", "docker.io/bitnami/redis"),
            ("library/debian:12", "docker.io/library/debian:12"),
            ("quay.io/argoproj/argocd:v3.1.0", "quay.io/argoproj/argocd:v3.1.0"),
            ("localhost/a", "localhost/a"),
            ("localhost:5000/a:b", "localhost:5000/a:b"),
            ("127.0.0.1:5000/a/b_c/d__e/f--g/h.i", "127.0.0.1:5000/a/b_c/d__e/f--g/h.i"),
            ("[::1]:5000/a", "[::1]:5000/a"),
            ("[fe80::1]/a", "[fe80::1]/a"),
            ("Registry/a", "Registry/a"),
            ("registry.example.com/a:_x.Y-1", "registry.example.com/a:_x.Y-1"),
            ("a:1", "docker.io/library/a:1"),
        ] {
            assert_eq!(whole(written), meant, "{written}");
            let pinned = format!("{written}@{digest}");
            assert_eq!(whole(&pinned), format!("{meant}@{digest}"), "{written}");
            assert!(pinned.parse::<ImageReference>().unwrap().is_pinned());
            assert_eq!(whole(&whole(written)), meant, "{written}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let digest = Digest::of(b"x");
        let identifier = "a".repeat(64);
        let long = format!("example.com/{}", "a/".repeat(130));
        let tag = format!("a:{}", "b".repeat(129));
        for text in [
            "",
            " ",
            ":",
            "@",
            "/",
            "a/",
            "/a",
            "a//b",
            "a:",
            "a@",
            "A",
            "a/B",
            "-a",
            "a-",
            "a..b",
            "a___b",
            "a.-b",
            "a b",
            "a\n",
            "ä",
            "a:b:c",
            "a:b/c",
            "https://example.com/a",
            "example.com:x/a",
            "example.com:/a",
            "-x.com/a",
            "x..com/a",
            "[::1/a",
            "[]/a",
            "[::1]x/a",
            "[g::]/a",
            "a:.b",
            "a@sha256:12",
            "a@md5:0123",
            "a@b@c",
            "{{image}}",
            &identifier,
            &long,
            &tag,
            &format!("a@{digest}0"),
            &format!("a@{digest}:b"),
            &format!("@{digest}"),
        ] {
            assert!(text.parse::<ImageReference>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_pinned_image_has_no_tag() {
        let image: ImageReference = "nginx:1.25".parse().unwrap();
        assert_eq!((image.registry(), image.repository(), image.tag()), ("docker.io", "library/nginx", Some("1.25")));
        let digest = Digest::of(b"x");
        assert_eq!(image.pinned(&digest).to_string(), format!("docker.io/library/nginx@{digest}"));
        assert_eq!(image.pinned(&digest).digest(), Some(&digest));
        assert_eq!(image.name(), "docker.io/library/nginx");
    }
}
