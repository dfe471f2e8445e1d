//! Addresses of repositories, without what must not be in Git.

/// A URL without passwords and tokens. The user of an ssh URL is part of its address and stays.
pub fn without_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) if scheme.to_ascii_lowercase().contains("ssh") => {
            format!("{}@{host}", user.split(':').next().unwrap_or_default())
        }
        Some((_, host)) => host.to_owned(),
        None => authority.to_owned(),
    };
    path.map_or_else(|| format!("{scheme}://{authority}"), |path| format!("{scheme}://{authority}/{path}"))
}

/// Two ways to write one address of a repository.
pub fn same_repository(a: &str, b: &str) -> bool {
    let plain = |url: &str| url.trim_end_matches('/').trim_end_matches(".git").to_ascii_lowercase();
    plain(a) == plain(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_with_and_without_its_ending() {
        assert!(same_repository("https://git.example.com/a.git", "https://Git.example.com/a/"));
        assert!(!same_repository("https://git.example.com/a", "https://git.example.com/b"));
    }

    #[test]
    fn credentials_of_a_remote_never_reach_the_repository() {
        for (url, clean) in [
            ("https://user:token@git.example.com/a/b.git", "https://git.example.com/a/b.git"),
            ("https://token@git.example.com/a", "https://git.example.com/a"),
            ("https://git.example.com/a@b", "https://git.example.com/a@b"),
            ("git@git.example.com:a/b.git", "git@git.example.com:a/b.git"),
            ("ssh://git@git.example.com/a/b.git", "ssh://git@git.example.com/a/b.git"),
            ("ssh://git:pass@git.example.com/a", "ssh://git@git.example.com/a"),
            ("HTTPS://me:tok@git.example.com/a", "HTTPS://git.example.com/a"),
            ("https://git.example.com/a?private_token=x", "https://git.example.com/a"),
        ] {
            assert_eq!(without_credentials(url), clean);
        }
    }
}
