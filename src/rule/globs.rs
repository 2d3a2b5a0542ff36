//! Globs on a name, compiled once, that remember how they were written.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// Some globs; a name matches if one of them does.
#[derive(Clone, Debug, Default)]
pub struct Globs {
    written: Vec<String>,
    set: GlobSet,
}

impl Globs {
    /// Compiles them. An error says that they are too many or too large together.
    pub fn new(globs: &[Glob]) -> Result<Globs, globset::Error> {
        let mut builder = GlobSetBuilder::new();
        for glob in globs {
            builder.add(glob.clone());
        }
        Ok(Globs { written: globs.iter().map(|glob| glob.glob().to_owned()).collect(), set: builder.build()? })
    }

    /// Whether one of them matches.
    pub fn is_match(&self, name: &str) -> bool {
        self.set.is_match(name)
    }

    /// As they were written.
    pub fn written(&self) -> &[String] {
        &self.written
    }

    /// As they were written, if all of them are made of plain bytes, `?` for any one and `*` for any number of them.
    pub fn plain(&self) -> Option<&[String]> {
        self.written.iter().all(|glob| Simple::of(glob).is_some()).then_some(&self.written)
    }

    /// True only if every name that `other` matches is matched here too. Not found out for every pair: each glob of
    /// `other` must be covered by a single one of these.
    pub fn covers(&self, other: &Globs) -> bool {
        other.written.iter().all(|glob| match Simple::of(glob) {
            Some(simple) if simple.is_name() => self.is_match(glob),
            simple => self.written.iter().any(|wide| {
                wide == "*"
                    || wide == glob
                    || simple.as_ref().is_some_and(|simple| Simple::of(wide).is_some_and(|w| w.covers(simple)))
            }),
        })
    }
}

/// A glob of plain characters, `?` and `*`, as bytes: that is what `?` stands for one of.
struct Simple(Vec<u8>);

impl Simple {
    /// None for a glob with classes, alternatives, escapes or `**`, which have rules of their own.
    fn of(glob: &str) -> Option<Simple> {
        let special = glob.contains(['[', ']', '{', '}', '\\', '!']) || glob.contains("**");
        (!special).then(|| Simple(glob.as_bytes().to_vec()))
    }

    fn is_name(&self) -> bool {
        !self.0.iter().any(|c| matches!(c, b'*' | b'?'))
    }

    /// Matches the other glob as if it were a name: its `*`, which stands for any text, can be taken in by a `*` alone,
    /// its `?` by `*` or `?`.
    fn covers(&self, narrow: &Simple) -> bool {
        // Which beginnings of `narrow` the part of this glob looked at so far can take in.
        let mut taken = vec![false; narrow.0.len() + 1];
        taken[0] = true;
        for &wide in &self.0 {
            if wide == b'*' {
                let first = taken.iter().position(|taken| *taken).unwrap_or(taken.len());
                taken[first..].fill(true);
                continue;
            }
            let fits = |c: u8| if wide == b'?' { c != b'*' } else { c == wide };
            for at in (0..narrow.0.len()).rev() {
                taken[at + 1] = taken[at] && fits(narrow.0[at]);
            }
            taken[0] = false;
        }
        taken[narrow.0.len()]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn globs(written: &[&str]) -> Globs {
        Globs::new(&written.iter().map(|glob| Glob::new(glob).unwrap()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn globs_cover_others_where_that_can_be_told() {
        for (wide, narrow, covers) in [
            (&["*"][..], &["a*", "b?", "[cd]", "{e,f}"][..], true),
            (&["*"], &["a*", "b?", "c"], true),
            (&["send_*"], &["send_email", "send_*", "send_sms_*"], true),
            (&["send_*"], &["send"], false),
            (&["send_*"], &["*"], false),
            (&["a*", "b*"], &["b1*", "a?"], true),
            (&["a*", "b*"], &["?x"], false),
            (&["*_email"], &["send_*_email"], true),
            (&["*a*b*"], &["xa*b"], true),
            (&["*a*b*"], &["b*a"], false),
            (&["??*"], &["?*?"], false),
            (&["a?"], &["a*"], false),
            (&["send_{mail,sms}"], &["send_sms"], true),
            (&["send_{mail,sms}"], &["send_{mail,sms}"], true),
            (&["send_{mail,sms}"], &["send_{sms,mail}"], false),
            (&["[a-c]*"], &["a*"], false),
            (&[], &[], true),
            (&[], &["a"], false),
            (&["a"], &[], true),
        ] {
            let covered = globs(wide).covers(&globs(narrow));
            assert_eq!(covered, covers, "{wide:?} covers {narrow:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(5_000))]
        #[test]
        fn what_is_said_to_be_covered_is(wide in "[abé*?]{0,5}", narrow in "[abé*?]{0,5}", name in "[abé]{0,6}") {
            let (wide, narrow) = (globs(&[&wide]), globs(&[&narrow]));
            prop_assert!(!(wide.covers(&narrow) && narrow.is_match(&name)) || wide.is_match(&name));
        }
    }
}
