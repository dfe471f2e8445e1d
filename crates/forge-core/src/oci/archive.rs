//! Trees of files, and tar archives of them: sorted, one time for all, owned by root.

use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use tar::{Builder, EntryType, Header};

use super::OciError;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A folder.
    Folder {
        /// Its permissions.
        mode: u32,
    },
    /// A file.
    File {
        /// Its bytes.
        content: Vec<u8>,
        /// Its permissions.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Where it leads.
        target: String,
    },
}

/// Files, folders and links by their paths, which have no slash at their start or end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds a folder, over what was there. Those above an entry need not be added: whoever unpacks makes them.
    pub fn folder(&mut self, path: &str, mode: u32) {
        self.add(path, Entry::Folder { mode });
    }

    /// Adds a file, over what was there.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>, mode: u32) {
        self.add(path, Entry::File { content: content.into(), mode });
    }

    /// Adds a symbolic link, over what was there.
    pub fn link(&mut self, path: &str, target: &str) {
        self.add(path, Entry::Link { target: target.to_owned() });
    }

    fn add(&mut self, path: &str, entry: Entry) {
        self.0.insert(path.trim_matches('/').to_owned(), entry);
    }

    /// What is at a path.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.0.get(path.trim_matches('/'))
    }

    /// Everything, in the order of paths.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The bytes of all files: what the tree takes where it is unpacked.
    pub fn size(&self) -> u64 {
        let of = |entry: &Entry| if let Entry::File { content, .. } = entry { content.len() as u64 } else { 0 };
        self.0.values().map(of).sum()
    }

    /// The tree as a tar archive.
    ///
    /// # Errors
    /// When a path leaves the tree, or a name does not fit into an archive.
    pub fn archive(&self, time: Timestamp) -> Result<Vec<u8>, OciError> {
        let mut archive = Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            append(&mut archive, path, entry, time).map_err(|error| OciError::Entry { path: path.clone(), error })?;
        }
        archive.into_inner().map_err(|error| OciError::Entry { path: String::new(), error })
    }
}

fn append(archive: &mut Builder<Vec<u8>>, path: &str, entry: &Entry, time: Timestamp) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(u64::try_from(time.as_second()).unwrap_or_default());
    header.set_size(0);
    match entry {
        Entry::Folder { mode } => {
            header.set_mode(*mode);
            header.set_entry_type(EntryType::Directory);
            archive.append_data(&mut header, format!("{path}/"), io::empty())
        }
        Entry::File { content, mode } => {
            header.set_mode(*mode);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, path, content.as_slice())
        }
        Entry::Link { target } => {
            header.set_mode(0o777);
            header.set_entry_type(EntryType::Symlink);
            archive.append_link(&mut header, path, target)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    /// Longer than a header can hold.
    fn deep() -> String {
        format!("{}x", "long/".repeat(60))
    }

    fn sample(order: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for path in order {
            tree.file(path, path.as_bytes(), 0o644);
        }
        tree.folder("/tmp/", 0o1777);
        tree.file("usr/bin/run", b"#!/bin/sh\n".as_slice(), 0o755);
        tree.link("/run", "usr/bin/run");
        tree.file(&deep(), b"deep".as_slice(), 0o600);
        tree
    }

    #[test]
    fn an_archive_holds_what_the_tree_holds_sorted_with_one_time_and_without_an_owner() {
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        let bytes = sample(&["b", "/a"]).archive(time).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_700_000_000);
            assert!(header.username_bytes().is_none_or(<[u8]>::is_empty));
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let link = entry.link_name().unwrap().map(|link| link.to_string_lossy().into_owned());
            seen.push((path, header.mode().unwrap(), content, link));
        }
        let file = |path: &str, mode: u32, content: &str| (path.to_owned(), mode, content.to_owned(), None);
        let wanted = [
            file("a", 0o644, "/a"),
            file("b", 0o644, "b"),
            file(&deep(), 0o600, "deep"),
            ("run".to_owned(), 0o777, String::new(), Some("usr/bin/run".to_owned())),
            file("tmp/", 0o1777, ""),
            file("usr/bin/run", 0o755, "#!/bin/sh\n"),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn a_path_that_leaves_the_tree_is_refused() {
        let mut tree = Tree::default();
        tree.file("../etc/passwd", b"x".as_slice(), 0o644);
        let refused = tree.archive(Timestamp::UNIX_EPOCH).unwrap_err().to_string();
        assert!(refused.starts_with("failed to write `../etc/passwd` into an archive: "), "{refused}");
    }

    #[test]
    fn the_size_of_a_tree_is_that_of_its_files() {
        assert_eq!(sample(&[]).size(), 10 + 4);
        assert_eq!(Tree::default().size(), 0);
    }

    proptest! {
        #[test]
        fn the_order_of_adding_does_not_matter(names in prop::collection::btree_set("[a-z]{1,8}(/[a-z]{1,8}){0,3}", 0..20)) {
            let forwards: Vec<&str> = names.iter().map(String::as_str).collect();
            let backwards: Vec<&str> = names.iter().rev().map(String::as_str).collect();
            let bytes = |order: &[&str]| sample(order).archive(Timestamp::UNIX_EPOCH).unwrap();
            prop_assert_eq!(bytes(&forwards), bytes(&backwards));
        }
    }
}
