//! Makes an event smaller, the optional parts first, until its body fits.

use super::Body;
use crate::event::{Alert, Digest, Event, EventData, JobDead};

/// Names of alert rules that a summary keeps.
const MOST_FIRING: usize = 50;

/// The body that `whole` makes of the event, or of the event shortened until that is at most `largest` bytes. Above
/// 63 KiB this cannot fail.
pub(super) fn fitting(event: &Event, largest: usize, whole: impl Fn(&Event) -> Body) -> Body {
    let mut body = whole(event);
    let mut shorter = event.clone();
    for step in STEPS {
        if body.bytes.len() <= largest {
            break;
        }
        match &mut shorter.data {
            EventData::Digest(digest) => {
                digest.samples.iter_mut().for_each(step);
                shorten_digest(digest);
            }
            EventData::AlertFiring(alert) | EventData::AlertResolved(alert) => shorten_alert(alert),
            data => data.job_mut().into_iter().for_each(step),
        }
        body = whole(&shorter);
    }
    body
}

/// What a dead letter gives up, in this order. The last step leaves so little that it fits even if every character were
/// escaped.
const STEPS: [fn(&mut JobDead); 4] = [
    |dead| dead.payload = None,
    |dead| dead.attempt_errors = None,
    |dead| cut(&mut dead.traceback, 8_192),
    |dead| {
        dead.traceback = None;
        for text in [
            &mut dead.job_id,
            &mut dead.task,
            &mut dead.queue,
            &mut dead.reason,
            &mut dead.error.kind,
            &mut dead.error.message,
            &mut dead.traceparent,
        ] {
            cut(text, 250);
        }
    },
];

fn shorten_digest(digest: &mut Digest) {
    for group in &mut digest.groups {
        cut(&mut group.task, 100);
        cut(&mut group.error.kind, 100);
        cut(&mut group.error.message, 200);
    }
    if let Some(outlook) = &mut digest.outlook {
        outlook.firing.truncate(MOST_FIRING);
    }
}

fn shorten_alert(alert: &mut Alert) {
    cut_text(&mut alert.summary, 1_000);
    alert.labels.values_mut().for_each(|value| cut_text(value, 100));
    for group in &mut alert.groups {
        for text in [&mut group.task, &mut group.queue, &mut group.reason, &mut group.error.kind] {
            cut(text, 100);
        }
        cut(&mut group.error.message, 300);
        cut(&mut group.retrying, 300);
    }
}

fn cut(text: &mut Option<String>, chars: usize) {
    if let Some(text) = text {
        cut_text(text, chars);
    }
}

fn cut_text(text: &mut String, chars: usize) {
    if let Some((at, _)) = text.char_indices().nth(chars) {
        text.truncate(at);
        text.push('…');
    }
}
