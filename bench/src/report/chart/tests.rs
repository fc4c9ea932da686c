use super::*;

fn chart(at: Vec<f64>, y: Vec<Option<f64>>) -> Chart {
    Chart {
        id: "c".to_owned(),
        title: "A <b>".to_owned(),
        at,
        series: vec![Series {
            name: "depth & </script><!--".to_owned(),
            colour: 1,
            dash: 0,
            form: Form::Line,
            y,
        }],
        ..Chart::default()
    }
}

/// Reads the data back as a browser does: up to the first end tag.
fn data(html: &str) -> serde_json::Value {
    let data = html
        .split("json\">")
        .nth(1)
        .unwrap()
        .split("</script")
        .next()
        .unwrap();
    serde_json::from_str(data).unwrap()
}

#[test]
fn texts_stay_texts_and_gaps_stay_gaps() {
    let mut out = String::new();
    chart(
        vec![0.0, 5.0, 10.0],
        vec![Some(0.0), Some(f64::NAN), Some(100.0)],
    )
    .render(&mut out);
    assert!(out.contains("A &lt;b&gt;"), "{out}");
    let data = data(&out);
    assert_eq!(data["at"], serde_json::json!([0.0, 5.0, 10.0]));
    assert_eq!(data["series"][0]["name"], "depth & </script><!--");
    assert_eq!(
        data["series"][0]["y"],
        serde_json::json!([0.0, null, 100.0])
    );
    assert_eq!(out.matches("</script").count(), 1, "{out}");
    assert!(!out.contains("<!--"), "{out}");
}

#[test]
fn no_peak_of_a_long_series_is_lost() {
    let mut y = vec![Some(1.0); 100_000];
    y[77_777] = Some(9.0);
    let mut out = String::new();
    chart((0..100_000).map(f64::from).collect(), y).render(&mut out);
    let data = data(&out);
    assert_eq!(data["at"].as_array().unwrap().len(), 100_000);
    assert_eq!(data["series"][0]["y"][77_777], 9.0);
}
