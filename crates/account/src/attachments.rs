//! Attachments of a prompt: images and texts, which the agent gets with it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ensemble_protocol::transcript::body::{Attachment, Resource};
use ensemble_protocol::transcript::bounds::MOST_ATTACHMENTS;

use crate::error::{Error, Result};

/// How the files of images begin: PNG (RFC 2083, section 3.1), JPEG (ITU-T T.81, annex B), GIF (its specification of 1989, section 17).
const IMAGES: [(&[u8], &str); 4] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
];

/// Reads the files, all together at most 512 KiB as they are sent.
pub fn attachments<P: AsRef<Path>>(files: &[P]) -> Result<Vec<Attachment>> {
    let mut all = Vec::with_capacity(files.len());
    let mut bytes = 0_usize;
    for path in files {
        let attachment = attachment(path.as_ref())?;
        bytes = bytes.saturating_add(attachment.size());
        all.push(attachment);
    }
    if bytes > MOST_ATTACHMENTS {
        return Err(too_long("The attachments together are"));
    }
    Ok(all)
}

fn too_long(what: &str) -> Error {
    Error::NotAttached(format!(
        "{what} longer than 512 KiB as they are sent, so nothing was sent. Make images smaller, or name the files in the prompt: the \
         agent reads files of its machine itself."
    ))
}

fn attachment(path: &Path) -> Result<Attachment> {
    let name = path.display();
    let unreadable = |error: std::io::Error| Error::NotAttached(format!("{name}: {error}."));
    let file = File::open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(Error::NotAttached(format!("{name} is not a file.")));
    }
    let mut bytes = Vec::new();
    let longest = u64::try_from(MOST_ATTACHMENTS).unwrap_or(u64::MAX).saturating_add(1);
    file.take(longest).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > MOST_ATTACHMENTS {
        return Err(too_long(&format!("{name} is")));
    }
    let is_webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    let known = IMAGES.iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, mime_type)| *mime_type);
    if let Some(mime_type) = known.or(is_webp.then_some("image/webp")) {
        return Ok(Attachment::Image { mime_type: mime_type.to_owned(), data: STANDARD.encode(&bytes) });
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        Error::NotAttached(format!(
            "{name} is neither a text nor an image (PNG, JPEG, GIF or WebP), so nothing was sent."
        ))
    })?;
    let file_name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok(Attachment::Resource { resource: Resource { uri: format!("file:///{file_name}"), mime_type: None, text } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_texts_are_attached_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let (png, text) = (file("a", b"\x89PNG\r\n\x1a\nrest"), file("notes.txt", "Grüße".as_bytes()));
        let both = attachments(&[&png, &text]).unwrap();
        let Attachment::Image { mime_type, data } = &both[0] else { panic!("{both:?}") };
        assert_eq!(
            (mime_type.as_str(), STANDARD.decode(data).unwrap()),
            ("image/png", b"\x89PNG\r\n\x1a\nrest".to_vec())
        );
        let Attachment::Resource { resource } = &both[1] else { panic!("{both:?}") };
        assert_eq!((resource.uri.as_str(), resource.text.as_str()), ("file:///notes.txt", "Grüße"));
        let webp = attachments(&[file("b", b"RIFF\0\0\0\0WEBPVP8 ")]).unwrap();
        assert!(matches!(&webp[..], [Attachment::Image { mime_type, .. }] if mime_type == "image/webp"));

        assert!(attachments(&[file("c", b"\xff\xfe\0\0")]).unwrap_err().to_string().contains("neither a text"));
        let half = file("half", &vec![b'x'; MOST_ATTACHMENTS / 2]);
        assert!(attachments(&[&half]).is_ok());
        assert!(
            attachments(&[&half, &half]).unwrap_err().to_string().contains("together"),
            "their names count as well"
        );
        assert!(attachments(&[file("long", &vec![b'x'; MOST_ATTACHMENTS + 1])]).is_err());
        assert!(attachments(&[folder.path()]).unwrap_err().to_string().contains("not a file"));
        assert!(attachments(&[folder.path().join("none")]).is_err());
    }
}
