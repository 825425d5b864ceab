//! Content negotiation with scrapers (RFC 9110 § 12.5.1).

/// An exposition format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Delimited protocol buffers.
    Protobuf,
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Text,
}

/// The format with the highest quality in these `Accept` headers; among equals, the richest one.
/// Text if none is named.
pub fn negotiate<'a>(accept: impl Iterator<Item = &'a str>) -> Form {
    let ranges = accept.flat_map(|header| header.split(','));
    let known = ranges.filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let form = match parts.next()?.to_ascii_lowercase().as_str() {
            "application/vnd.google.protobuf" => Form::Protobuf,
            "application/openmetrics-text" => Form::OpenMetrics,
            "text/plain" => Form::Text,
            _ => return None,
        };
        let (mut quality, mut delimited) = (1.0, form != Form::Protobuf);
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim() {
                "q" => quality = value.trim().parse().unwrap_or(0.0),
                "encoding" => delimited |= value.trim() == "delimited",
                _ => {}
            }
        }
        (delimited && quality > 0.0).then_some((quality, form))
    });
    let mut best = (0.0, Form::Text);
    for (quality, form) in known {
        let is_richer = (form as u8) < (best.1 as u8);
        if quality > best.0 || (quality == best.0 && is_richer) {
            best = (quality, form);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_gets_its_preferred_format() {
        let wants = |accept: &'static str| negotiate([accept].into_iter());
        let protobuf =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        // Prometheus 2.42 with native histograms, without, and 3.
        assert_eq!(
            negotiate(
                [
                    protobuf,
                    "application/openmetrics-text;version=1.0.0;q=0.8,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                ]
                .into_iter()
            ),
            Form::Protobuf
        );
        assert_eq!(
            wants("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"),
            Form::OpenMetrics
        );
        assert_eq!(
            wants(
                "application/openmetrics-text;version=1.0.0;q=0.6,\
                 application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited;q=0.5,text/plain;q=0.4"
            ),
            Form::OpenMetrics
        );
        assert_eq!(wants(""), Form::Text);
        assert_eq!(wants("*/*"), Form::Text);
        assert_eq!(wants("application/vnd.google.protobuf;encoding=text"), Form::Text);
        assert_eq!(wants("application/openmetrics-text;q=0, text/plain;q=0.1"), Form::Text);
        assert_eq!(wants("application/openmetrics-text;q=nonsense"), Form::Text);
        assert_eq!(wants("text/plain, APPLICATION/OpenMetrics-Text"), Form::OpenMetrics);
    }
}
