//! A layer of resources as everybody reads it who uses it: the plugin that renders it, and those that say beforehand what would come
//! of it. So what one of them refuses all of them refuse: documents beyond a limit, the plugin's own receipt, images that are not
//! fixed by digest.

use std::io::Read;

use super::receipt::{self, is_no_receipt};
use super::{Document, Limits, ReleaseError, SHOWN_IMAGES, documents, unpack};
use crate::name::clip;
use crate::oci::Descriptor;

/// Reads a layer as it comes and gives every document to `each`, with its text as it is rendered. One file of it is in memory at a
/// time.
///
/// What `each` was given counts only once this has returned: the digest is known at the end, and so are all images.
///
/// # Errors
/// When these are not the bytes that the descriptor promises, or hold what nobody would render; or when `each` fails.
pub fn read_layer(
    packed: &mut dyn Read,
    layer: &Descriptor,
    limits: &Limits,
    each: &mut dyn FnMut(Document, String) -> Result<(), ReleaseError>,
) -> Result<(), ReleaseError> {
    // The receipt is rendered whatever else is.
    let (mut count, mut output) = (0_usize, receipt::length());
    let (mut loose, mut more) = (Vec::new(), 0_usize);
    unpack(packed, layer, limits, &mut |path, bytes| {
        let file = format!("`{}`", clip(path));
        for document in documents(path, &bytes, limits)? {
            is_no_receipt(&file, &document)?;
            document.each_loose_image(&mut |image| {
                if loose.len() < SHOWN_IMAGES {
                    loose.push(image);
                } else {
                    more = more.saturating_add(1);
                }
            });
            let text = format!("---\n{}", document.text());
            output = output.saturating_add(text.len() as u64);
            if output > limits.output {
                let (what, most) = ("what is rendered".to_owned(), limits.output);
                return Err(ReleaseError::TooMuchOutput { what, most });
            }
            count += 1;
            if count > limits.entries {
                let (what, found, limit) = ("the layer".to_owned(), count as u64, limits.entries as u64);
                return Err(ReleaseError::TooLarge { what, found, limit, unit: "documents" });
            }
            each(document, text)?;
        }
        Ok(())
    })?;
    if loose.is_empty() { Ok(()) } else { Err(ReleaseError::NotPinned { images: loose, more }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;
    use crate::digest::Digest;
    use crate::oci::{Tree, gzip};
    use crate::release::media_type;

    /// The texts of what is in a layer of these files.
    fn read(files: &[(&str, &str)], limits: &Limits) -> Result<Vec<String>, ReleaseError> {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.file(path, text.as_bytes(), 0o644);
        }
        let packed = gzip(&tree.archive(jiff::Timestamp::UNIX_EPOCH).unwrap()).unwrap();
        let layer = Descriptor::of(media_type::RESOURCES, &packed);
        let mut found = Vec::new();
        read_layer(&mut packed.as_slice(), &layer, limits, &mut |_, text| {
            found.push(text);
            Ok(())
        })?;
        Ok(found)
    }

    fn config_map(name: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n")
    }

    fn pod(name: &str, image: &str) -> String {
        format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: [{{image: '{image}'}}]}}\n")
    }

    #[track_caller]
    fn refused(files: &[(&str, &str)], limits: &Limits, code: Code, words: &str) {
        let error = read(files, limits).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }

    #[test]
    fn documents_come_with_the_text_that_is_rendered() {
        let (a, b) = (config_map("a"), config_map("b"));
        let pinned = pod("p", &format!("nginx@{}", Digest::of(b"image")));
        let files = [("a.yaml", format!("{a}---\n{b}")), ("p.yaml", pinned)];
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let found = read(&files, &Limits::default()).unwrap();
        assert_eq!(found.len(), 3);
        assert_eq!(found[0], "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n");
    }

    #[test]
    fn limits_are_those_of_all_files_together() {
        let (a, b) = (config_map("a"), config_map("b"));
        let files = [("a.yaml", a.as_str()), ("b.yaml", b.as_str())];
        let of = Limits::default();
        // With the receipt, which Argo CD takes too.
        let output = 110 + receipt::length();
        assert_eq!(read(&files, &Limits { output, entries: 2, ..of }).unwrap().concat().len(), 110);
        let words = format!("what is rendered has more than {} bytes", output - 1);
        refused(&files, &Limits { output: output - 1, ..of }, Code::ReleaseTooLarge, &words);
        let lists = [("a.yaml", format!("{a}---\n{b}")), ("b.yaml", config_map("c"))];
        let lists: Vec<(&str, &str)> = lists.iter().map(|(path, text)| (*path, text.as_str())).collect();
        refused(&lists, &Limits { entries: 2, ..of }, Code::ReleaseTooLarge, "the layer has 3 documents, at most 2");
    }

    #[test]
    fn what_only_the_plugin_may_say_is_refused() {
        let file = format!("{}---\n{}", config_map("a"), config_map("forge-receipt"));
        let words = "`a.yaml`: it holds ConfigMap `forge-receipt`";
        refused(&[("a.yaml", &file)], &Limits::default(), Code::ReleaseMalformed, words);
    }

    #[test]
    fn images_that_are_not_fixed_are_named_all_at_once_and_of_many_the_first() {
        let (a, b) = (pod("a", "nginx:1.25"), pod("b", "not an image"));
        let files = [("a.yaml", a.as_str()), ("b.yaml", b.as_str())];
        let said = read(&files, &Limits::default()).unwrap_err();
        assert_eq!(said.code(), Code::ImageNotPinned);
        let said = said.to_string();
        assert!(
            said.starts_with("2 images are not fixed by digest\n  `Pod a`: spec.containers[0].image is `nginx:1.25`\n"),
            "{said}"
        );
        assert!(said.contains("\n  `Pod b`: spec.containers[0].image: `not an image` is not"), "{said}");
        let many: String = (0..60).map(|n| format!("---\n{}", pod(&format!("p{n}"), "nginx"))).collect();
        refused(&[("a.yaml", &many)], &Limits::default(), Code::ImageNotPinned, "60 images are not fixed");
        refused(&[("a.yaml", &many)], &Limits::default(), Code::ImageNotPinned, "\n  and 10 more");
    }
}
