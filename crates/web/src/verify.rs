//! Whether a server serves the page of this program: what is to be asked for, and an answer against the file that it should be.

use std::io::Read;

use sha2::{Digest, Sha256};

use crate::{File, POLICY};

/// Fields that change what a browser does with a file, and that a server of ours never sends.
const NEVER: [&str; 5] = ["refresh", "link", "service-worker-allowed", "sourcemap", "x-sourcemap"];

/// Never served by a server: scripts that a browser would keep, and an address that the page would call.
const ABSENT: [&str; 3] = ["sw.js", "service-worker.js", "server.json"];

/// A request and what must come back. Nothing: there must be no file.
pub struct Check {
    pub path: String,
    /// The `Accept-Encoding` of the request.
    pub coding: &'static str,
    /// As it is when it is not compressed.
    file: Option<File>,
    /// The page at a place of the app, where browsers ask for HTML.
    is_page: bool,
}

/// What a server has sent.
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub fields: Vec<(String, String)>,
    /// `None`: it is longer than the file may be.
    pub body: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub struct Found {
    /// Each as the end of a sentence that begins with the path.
    pub differences: Vec<String>,
    /// Where the page may connect to apart from its server.
    pub connects: Vec<String>,
}

/// Every file in every coding, the page at each of its places, and what must not be there.
pub fn checks() -> Vec<Check> {
    let places = crate::ROUTES.iter().map(|place| ((*place).to_owned(), "index.html".to_owned(), true));
    let files: Vec<_> = crate::paths().map(|path| (path.to_owned(), path.to_owned(), false)).collect();
    let absent = ABSENT.iter().filter(|path| crate::file(path, "").is_none());
    let absent = absent.map(|path| Check { path: (*path).to_owned(), coding: "identity", file: None, is_page: false });
    let present = places.chain(files.clone()).flat_map(|(path, file, is_page)| {
        ["br", "gzip", "identity"].into_iter().filter_map(move |coding| {
            let file = Some(crate::file(&file, "")?);
            Some(Check { path: path.clone(), coding, file, is_page })
        })
    });
    present.chain(absent).collect()
}

impl Check {
    /// The `Accept` of the request.
    pub fn accept(&self) -> &'static str {
        if self.file.is_none() || self.is_page { "text/html,*/*;q=0.8" } else { "*/*" }
    }

    /// The bytes that must come back, without any compression.
    pub fn length(&self) -> usize {
        self.file.as_ref().map_or(0, |file| file.bytes.len())
    }

    /// What is wrong with the answer to it.
    pub fn compare(&self, sent: &Answer) -> Found {
        compare(sent, self.file.as_ref())
    }
}

/// Compares an answer with a file; without one there must be no such file.
fn compare(sent: &Answer, expected: Option<&File>) -> Found {
    let mut found = Found::default();
    let Some(file) = expected else {
        if sent.status != 404 {
            found.differences.push(format!("must not be there, and is answered with status {}", sent.status));
        }
        return found;
    };
    match sent.status {
        200 => {}
        404 => {
            found.differences.push("is missing".to_owned());
            return found;
        }
        status => {
            found.differences.push(format!("is answered with status {status} instead of the file"));
            return found;
        }
    }
    if let Some(difference) = contents(sent, file) {
        found.differences.push(difference);
    }
    for (name, value) in file.fields(&crate::policy(&[])) {
        // Caches on the way may change the others.
        let matters = ["content-type", "cross-origin-opener-policy", "referrer-policy", "permissions-policy"];
        if name == POLICY {
            match policy(sent, &value) {
                Ok(connects) => found.connects = connects,
                Err(difference) => found.differences.push(difference),
            }
        } else if matters.contains(&name) && values(sent, name) != [value.as_str()] {
            let sent = shown(&values(sent, name).join(", "));
            found.differences.push(format!("has {name}: {sent:?} instead of {value:?}"));
        }
    }
    for name in NEVER.iter().filter(|name| !values(sent, name).is_empty()) {
        found.differences.push(format!("comes with the field {name}, which a server of this program does not send"));
    }
    found
}

/// How the decoded contents differ.
fn contents(sent: &Answer, file: &File) -> Option<String> {
    let coding = values(sent, "content-encoding").join(", ");
    let most = file.bytes.len();
    let Some(body) = &sent.body else { return Some(format!("differs: it is longer than {most} bytes")) };
    let Some(body) = decoded(&coding, body, most) else {
        return Some(format!("cannot be decoded from {:?}", shown(&coding)));
    };
    let digest: [u8; 32] = Sha256::digest(&body).into();
    let differs = || format!("differs: SHA-256 {} instead of {}", hex(&digest), hex(&file.sha256));
    (digest != file.sha256).then(differs)
}

/// At most one byte more than `most`, which is enough to see a difference.
fn decoded(coding: &str, body: &[u8], most: usize) -> Option<Vec<u8>> {
    let most = u64::try_from(most).ok()?.saturating_add(1);
    let mut out = Vec::new();
    let read = match coding {
        "" | "identity" => body.take(most).read_to_end(&mut out),
        "gzip" => flate2::read::MultiGzDecoder::new(body).take(most).read_to_end(&mut out),
        "br" => brotli_decompressor::Decompressor::new(body, 4096).take(most).read_to_end(&mut out),
        _ => return None,
    };
    read.ok().map(|_| out)
}

/// Where the policy lets the page connect to apart from its server, if the rest of it is as it should be.
fn policy(sent: &Answer, wanted: &str) -> Result<Vec<String>, String> {
    let lines = values(sent, POLICY);
    let [line] = lines.as_slice() else {
        return Err(format!("comes with {} fields {} instead of one", lines.len(), POLICY));
    };
    let (mut connects, own) = (Vec::new(), "connect-src 'self'");
    let rest: Vec<&str> = line.split("; ").collect();
    let is_wanted = rest.len() == wanted.split("; ").count()
        && rest.iter().zip(wanted.split("; ")).all(|(one, wanted)| match one.strip_prefix(own) {
            Some(more) if wanted == own => {
                connects.extend(more.split_whitespace().map(str::to_owned));
                more.is_empty() || more.starts_with(' ')
            }
            _ => *one == wanted,
        });
    // Voice is one address of LiveKit.
    let is_voice = |origin: &String| {
        let host = origin.strip_prefix("wss://").or_else(|| origin.strip_prefix("ws://"));
        host.is_some_and(|host| !host.is_empty() && !host.contains(['*', '/', '\'', ',']))
    };
    if is_wanted && connects.len() <= 1 && connects.iter().all(is_voice) {
        Ok(connects)
    } else {
        Err(format!("has another {}: {}", POLICY, shown(line)))
    }
}

fn values<'a>(sent: &'a Answer, name: &str) -> Vec<&'a str> {
    sent.fields.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str()).collect()
}

/// A text of the server, of bounded length.
fn shown(text: &str) -> String {
    let mut shown: String = text.trim().chars().take(600).collect();
    if shown.len() < text.trim().len() {
        shown.pop();
        shown.push('…');
    }
    shown
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(change: impl FnOnce(&mut Answer)) -> Vec<String> {
        let file = crate::file("index.html", "").unwrap();
        let fields = file.fields(&crate::policy(&["wss://voice.example.com"]));
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut sent = Answer { status: 200, fields, body: Some(file.bytes.to_vec()) };
        change(&mut sent);
        compare(&sent, Some(&file)).differences
    }

    fn set(sent: &mut Answer, name: &str, value: String) {
        sent.fields.retain(|(found, _)| found != name);
        sent.fields.push((name.to_owned(), value));
    }

    #[test]
    fn what_a_server_of_the_same_build_sends_is_the_same() {
        assert_eq!(sent(|_| ()), Vec::<String>::new());
        assert_eq!(sent(|sent| set(sent, "age", "4".to_owned())), Vec::<String>::new());
    }

    #[test]
    fn every_change_is_found() {
        let weaker = [
            crate::policy(&[]).replace("script-src 'self'", "script-src 'self' 'unsafe-inline'"),
            crate::policy(&["https://evil.example"]),
            crate::policy(&["wss://*"]),
            crate::policy(&["wss://voice.example.com", "wss://evil.example"]),
            crate::policy(&[]).replace("connect-src 'self'", "connect-src 'self'wss://a"),
            crate::policy(&[]).replace("; frame-ancestors 'none'", ""),
            String::new(),
        ];
        for policy in weaker {
            let differences = sent(|sent| set(sent, POLICY, policy.clone()));
            assert!(differences.len() == 1 && differences[0].contains(POLICY), "{policy}: {differences:?}");
        }
        for (name, value) in
            [("link", "</a.css>; rel=stylesheet"), ("content-type", "text/plain"), ("referrer-policy", "unsafe-url")]
        {
            assert_eq!(sent(|sent| set(sent, name, value.to_owned())).len(), 1, "{name}");
        }
        for change in [
            (|sent| sent.body.as_mut().unwrap()[20] ^= 1) as fn(&mut Answer),
            |sent| sent.body.as_mut().unwrap().push(b'\n'),
            |sent| sent.body.as_mut().unwrap().truncate(10),
            |sent| sent.body = None,
            |sent| sent.status = 404,
            |sent| sent.status = 302,
            |sent| set(sent, "content-encoding", "br".to_owned()),
            |sent| set(sent, "content-encoding", "zstd".to_owned()),
        ] {
            assert_eq!(sent(change).len(), 1);
        }
    }

    #[test]
    fn compressed_contents_are_those_of_the_file() {
        for path in crate::paths() {
            let plain = crate::file(path, "").unwrap();
            for coding in ["br", "gzip"] {
                let packed = crate::file(path, coding).unwrap();
                let is_packed = packed.coding != crate::Coding::Identity;
                let found = decoded(if is_packed { coding } else { "" }, packed.bytes, plain.bytes.len()).unwrap();
                assert_eq!(found, plain.bytes, "{path} {coding}");
            }
        }
    }
}
