//! The body of a request: JSON, bounded in size and time, and told exactly where it is wrong.

use std::{fmt, marker::PhantomData, time::Duration};

use axum::{
    body::to_bytes,
    extract::{FromRequest, Request},
    http::header,
};
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde_path_to_error::{Path, Segment};

use super::problem::{Problem, Wrong};

/// Bytes at most.
pub(super) const LARGEST: usize = 64 * 1024;
/// How long it may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);
/// Characters of a note at most.
const LONGEST_NOTE: usize = 500;

/// A body that was read. Where nothing must be given, an empty body is as good as `{}`.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Json<T>, Problem> {
        let is_json = request.headers().get(header::CONTENT_TYPE).map(|value| is_json(value.as_bytes()));
        let bytes = tokio::time::timeout(ARRIVES_WITHIN, to_bytes(request.into_body(), LARGEST)).await;
        // Of what else can go wrong with a body, the connection breaking, nobody would hear.
        let bytes = bytes.map_err(|_| Problem::slow_body())?.map_err(|_| Problem::too_large(LARGEST))?;
        match is_json {
            None if bytes.is_empty() => {}
            Some(true) => {}
            None | Some(false) => return Err(Problem::media_type()),
        }
        let bytes = if bytes.is_empty() { &b"{}"[..] } else { &bytes };
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let read = serde_path_to_error::deserialize::<_, Object<T>>(&mut json).map_err(|error| {
            let place = pointer(error.path());
            // It says where in the text, too, which the pointer says better unless it is no JSON.
            let detail = error.inner().to_string();
            match error.inner().is_data() {
                true => Wrong::at(place, detail.split(" at line ").next().unwrap_or(&detail)),
                false => Wrong::at("", format!("this is no JSON: {detail}")),
            }
        });
        let read = read.and_then(|read| match json.end() {
            Ok(()) => Ok(read.0),
            Err(_) => Err(Wrong::at("", "there is something behind the JSON document")),
        });
        read.map(Json).map_err(|wrong| Problem::invalid(vec![wrong]))
    }
}

/// A JSON object. What is derived takes a list for one, too, and its items for the fields in their order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
            }
        }

        from.deserialize_map(Fields(PhantomData))
    }
}

/// For a field that is an object.
pub(super) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Object::deserialize(from).map(|Object(read)| read)
}

fn is_json(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

/// RFC 6901.
fn pointer(path: &Path) -> String {
    let segment = |segment: &Segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } | Segment::Enum { variant: key } => {
            format!("/{}", key.replace('~', "~0").replace('/', "~1"))
        }
        Segment::Unknown => String::new(),
    };
    path.iter().map(segment).collect()
}

/// A note for the audit log, or what is wrong with it.
pub(super) fn checked_note(note: &str) -> Result<(), String> {
    if note.chars().count() > LONGEST_NOTE {
        return Err(format!("a note has {LONGEST_NOTE} characters at most"));
    }
    match note.chars().any(char::is_control) {
        true => Err("a note is one line without control characters".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Some {
        #[serde(deserialize_with = "object")]
        filter: Inner,
        all: bool,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Inner {
        task: Vec<String>,
    }

    async fn read(content_type: Option<&str>, body: &str) -> Result<bool, serde_json::Value> {
        let mut request = Request::builder().uri("/x");
        if let Some(content_type) = content_type {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        match Json::<Some>::from_request(request, &()).await {
            Ok(Json(some)) => Ok(some.all && some.filter.task.is_empty()),
            Err(problem) => Err(serde_json::to_value(&problem).unwrap()),
        }
    }

    #[tokio::test]
    async fn a_body_is_read_or_told_where_it_is_wrong() {
        let json = Some("application/json; charset=utf-8");
        assert_eq!(read(json, "{\"all\": true}").await, Ok(true));
        assert_eq!(read(None, "").await, Ok(false));
        assert_eq!(read(json, " ").await.unwrap_err()["status"], 400);
        for (content_type, body, status, pointer, detail) in [
            (json, "{\"all\": 1}", 400, "/all", "invalid type: integer `1`, expected a boolean"),
            (
                json,
                "{\"filter\": {\"task\": [\"a\", 2]}}",
                400,
                "/filter/task/1",
                "invalid type: integer `2`, expected a string",
            ),
            (json, "{\"al\": true}", 400, "/al", "unknown field `al`, expected `filter` or `all`"),
            (json, "{", 400, "", "this is no JSON: EOF while parsing an object at line 1 column 1"),
            (json, "{} {}", 400, "", "there is something behind the JSON document"),
            (json, "[]", 400, "", "invalid type: sequence, expected an object"),
            (json, "{\"filter\": []}", 400, "/filter", "invalid type: sequence, expected an object"),
            (Some("text/plain"), "{}", 415, "", ""),
            (None, "{}", 415, "", ""),
            (json, &format!("{{\"filter\": {{\"task\": [\"{}\"]}}}}", "x".repeat(LARGEST)), 413, "", ""),
        ] {
            let problem = read(content_type, body).await.unwrap_err();
            assert_eq!(problem["status"], status, "{body:.40} {problem}");
            if !detail.is_empty() {
                assert_eq!(problem["errors"][0]["pointer"], pointer, "{body:.40} {problem}");
                assert_eq!(problem["errors"][0]["detail"], detail, "{body:.40} {problem}");
            }
        }
    }

    #[test]
    fn a_note_is_one_line() {
        assert!(checked_note("the smtp outage of 12 May").is_ok() && checked_note("").is_ok());
        assert!(checked_note("a\nb").is_err() && checked_note(&"x".repeat(501)).is_err());
    }
}
