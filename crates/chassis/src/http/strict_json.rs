//! Reads JSON as strictly as RFC 8259 and RFC 7493 allow. Text that two parsers could read differently is refused.
//!
//! One pass over the text, before it is read into a type, refuses repeated keys, U+0000, lone surrogates and more than
//! [`MAX_DEPTH`] levels or [`MAX_MEMBERS`] members. Free objects can therefore be stored as text, and all
//! later readers read the same.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use ensemble_types::problem::{Code, Problem};

use super::members::{Found, Members, Unknown, cut};

/// The deepest nesting of arrays and objects.
pub const MAX_DEPTH: u32 = 32;

/// The most members of one object. Checking for repeated keys costs memory for each of them.
pub const MAX_MEMBERS: usize = 10_000;

/// Reads an object into a type. The problem has a JSON Pointer to the mistake.
pub fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Err(Problem::field("", "must be an object"));
    }
    // The path is computed only after a failure, because nearly all bodies are valid.
    serde_json::from_slice(text).or_else(|_| {
        let mut json = serde_json::Deserializer::from_slice(text);
        serde_path_to_error::deserialize(&mut json).map_err(|error| invalid_field(&error))
    })
}

/// Refuses text that is not strict JSON, and finds the members that are not among those of its schema. A list in the place of an object
/// is refused too: serde reads a struct from one, by the order of its fields.
pub fn check(text: &[u8], known: &Members) -> Result<Vec<Unknown>, Problem> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let found = Found::default();
    let list = RefCell::new(None);
    let whole = Strict { depth: 0, known, place: &Place::Whole, found: &found, list: &list };
    let checked = whole.deserialize(&mut json).and_then(|()| json.end());
    checked.map_err(|error| Problem::new(Code::InvalidJson, error.to_string()))?;
    match list.into_inner() {
        Some(pointer) => Err(Problem::field(pointer, "must be an object")),
        None => Ok(found.into_inner()),
    }
}

/// Where a value stands.
enum Place<'a> {
    Whole,
    Member(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    /// Its JSON Pointer (RFC 6901). Long names are cut.
    fn pointer(&self) -> String {
        match self {
            Self::Whole => String::new(),
            Self::Member(of, name) => format!("{}/{}", of.pointer(), escaped(&cut(name))),
            Self::Item(of, index) => format!("{}/{index}", of.pointer()),
        }
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn invalid_field(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            serde_path_to_error::Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&escaped(key));
            }
            serde_path_to_error::Segment::Seq { index } => {
                pointer.push('/');
                pointer.push_str(&index.to_string());
            }
            _ => {}
        }
    }
    let text = error.inner().to_string();
    // serde_json adds the line and column, which the pointer replaces.
    let detail = text.split(" at line ").next().unwrap_or(&text).to_owned();
    if let Some(missing) = detail.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        return Problem::field(format!("{pointer}/{missing}"), "is required");
    }
    Problem::field(pointer, detail)
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: u32,
    known: &'a Members,
    place: &'a Place<'a>,
    found: &'a Found,
    /// Where a list stands in the place of an object.
    list: &'a RefCell<Option<String>>,
}

impl Strict<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<u32, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!("nested more than {MAX_DEPTH} levels deep")));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        no_nul(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let depth = self.deeper()?;
        if self.known.is_object() {
            self.list.borrow_mut().get_or_insert_with(|| self.place.pointer());
        }
        for index in 0.. {
            let place = Place::Item(self.place, index);
            let item = Strict { depth, known: self.known.item(), place: &place, ..self };
            if items.next_element_seed(item)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        const FREE: &Members = &Members::free();
        let depth = self.deeper()?;
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<std::borrow::Cow<'de, str>>()? {
            no_nul(&key)?;
            if seen.contains(&key) {
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice in one object")));
            }
            if seen.len() == MAX_MEMBERS {
                return Err(A::Error::custom(format_args!("an object has more than {MAX_MEMBERS} members")));
            }
            let place = Place::Member(self.place, &key);
            let known = self.known.member(&key);
            if known.is_none() && !self.found.is_full() {
                self.found.add(&place.pointer(), &key, self.known);
            }
            members.next_value_seed(Strict { depth, known: known.unwrap_or(FREE), place: &place, ..self })?;
            seen.insert(key);
        }
        Ok(())
    }
}

fn no_nul<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.as_bytes().contains(&0) { Err(E::custom("a string holds U+0000, which is taken nowhere")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    fn strict(text: &[u8]) -> Result<Vec<Unknown>, Problem> {
        check(text, &Members::free())
    }

    #[test]
    fn refuses_what_two_parsers_could_read_differently() {
        let deep = "[".repeat(10_000) + &"]".repeat(10_000);
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"x":{"a":1,"a":1}}"#,
            r#"{"a":"\u0000"}"#,
            r#"{"\u0000":1}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\udc00\ud800"}"#,
            r#"{"a":1} x"#,
            r#"{"a":01}"#,
            "{a:1}",
            "",
            "nul",
            &deep,
        ] {
            assert_eq!(strict(bad.as_bytes()).unwrap_err().code, Code::InvalidJson, "{bad:.40}");
        }
        assert!(strict(b"\"\xff\"").is_err());
        let members = |count: usize| {
            let members: Vec<String> = (0..count).map(|at| format!("\"{at}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(strict(members(MAX_MEMBERS).as_bytes()).is_ok());
        assert!(strict(members(MAX_MEMBERS + 1).as_bytes()).is_err());
        assert!(strict(br#"{"a":[1,{"b":"\ud83d\ude00 \\u0000"}],"c":1e3}"#).is_ok());
    }

    #[derive(Debug, Deserialize)]
    struct Batch {
        #[expect(dead_code, reason = "only its reading is tested")]
        messages: Vec<Draft>,
    }

    #[derive(Debug, Deserialize)]
    struct Draft {
        #[expect(dead_code, reason = "only its reading is tested")]
        content: String,
        #[expect(dead_code, reason = "only its reading is tested")]
        seq: u32,
    }

    #[test]
    fn a_pointer_names_the_field() {
        for (body, pointer) in [
            (r#"{"messages":[{"content":"x","seq":1},{"content":7,"seq":1}]}"#, "/messages/1/content"),
            (r#"{"messages":[{"content":"x"}]}"#, "/messages/0/seq"),
            (r#"{"messages":[{"content":"x","seq":"1"}]}"#, "/messages/0/seq"),
            (r#"{"messages":[{"content":"x","seq":-1}]}"#, "/messages/0/seq"),
            (r#"{"messages":[{"content":"x","seq":99999999999}]}"#, "/messages/0/seq"),
            (r#"{"messages":{}}"#, "/messages"),
            ("{}", "/messages"),
            (r#"[[{"content":"x","seq":1}]]"#, ""),
            (" 7", ""),
        ] {
            let problem = parse::<Batch>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.errors[0].pointer, pointer, "{body}: {problem}");
        }
    }
}
