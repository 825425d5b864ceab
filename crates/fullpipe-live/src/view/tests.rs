use super::*;
use crate::text::tests::example;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    (0..height)
        .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
        .collect()
}

fn press(app: &mut App, codes: &[KeyCode]) -> Action {
    codes.iter().fold(Action::Redraw, |_, code| app.handle_key(KeyEvent::from(*code)))
}

#[test]
fn the_list_shows_totals_and_limits_and_follows_the_selection() {
    let mut app = App::new(String::new(), false);
    app.update(example());
    let lines = screen(&mut app, 80, 24);
    assert!(lines[0].contains("2 connections by rate"), "{lines:#?}");
    assert!(
        lines.iter().any(|l| l.starts_with("bbr     ProbeBW") && l.contains("bandwidth 97 %")),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|l| l.starts_with("cubic") && l.contains("congestion window")), "{lines:#?}");
    // CUBIC is in the second row; it stays selected when it moves to the first.
    press(&mut app, &[KeyCode::Down, KeyCode::Down]);
    let cookie = app.selected;
    press(&mut app, &[KeyCode::Char('r')]);
    app.update(example());
    assert_eq!((app.selected, app.table.selected()), (cookie, Some(0)));
    assert_eq!(app.selected_connection().unwrap().controller.as_deref(), Some("cubic"));
}

#[test]
fn nothing_is_cut_at_any_width_from_eighty_columns_up() {
    for width in [80, 100, 140] {
        let mut app = App::new(String::new(), false);
        app.update(example());
        let totals = screen(&mut app, width, 24)[1..5].join(" ");
        let words = totals.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.matches("queueing 1.20 ms").count(), 2, "{width}: {totals}");
        press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
        let lines = screen(&mut app, width, 24);
        let text = lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in ["delivery", "cwnd gain 2.00", "in flight", "rate, Mbit/s"] {
            assert!(text.contains(expected), "{width}: {expected}: {lines:#?}");
        }
    }
}

#[test]
fn details_and_history_are_shown_even_after_closing() {
    let mut app = App::new(String::new(), true);
    for t in 0..30 {
        let mut snapshot = example();
        snapshot.t_s = f64::from(t);
        app.update(snapshot);
    }
    press(&mut app, &[KeyCode::Enter]);
    let lines = screen(&mut app, 200, 60);
    for expected in [
        "nginx (4711)",
        "unit nginx.service",
        "ProbeBW, bandwidth 48.3 Mbit/s",
        "bandwidth 97 %",
        "rate, Mbit/s",
        "RTT, ms",
        "29 s ago",
    ] {
        assert!(lines.iter().any(|l| l.contains(expected)), "{expected}: {lines:#?}");
    }
    assert!(
        lines.iter().any(|l| l.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))),
        "no chart: {lines:#?}"
    );
    let mut closed = example();
    closed.connections.clear();
    app.update(closed);
    let lines = screen(&mut app, 100, 40);
    assert!(
        lines[0].contains("has closed") && lines.iter().any(|l| l.contains("rate, Mbit/s")),
        "{lines:#?}"
    );
    press(&mut app, &[KeyCode::Esc]);
    assert!(screen(&mut app, 100, 40).iter().any(|l| l.contains("no matching connections")));
}

#[test]
fn filters_can_be_typed_and_errors_are_shown() {
    let mut app = App::new(String::new(), false);
    app.update(example());
    let typed: Vec<KeyCode> = "/cc bb".chars().map(KeyCode::Char).collect();
    assert_eq!(press(&mut app, &typed), Action::Redraw);
    assert!(screen(&mut app, 80, 24).iter().any(|l| l == "filter: cc bb▏"));
    press(&mut app, &[KeyCode::Char(')'), KeyCode::Enter]);
    assert!(screen(&mut app, 80, 24).iter().any(|l| l.contains("unmatched closing bracket (character 6)")));
    let action = press(&mut app, &[KeyCode::Backspace, KeyCode::Char('r'), KeyCode::Enter]);
    assert_eq!(action, Action::Filter(Filter::parse("cc bbr").unwrap()));
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Action::Quit);
}

#[test]
fn any_terminal_size_can_be_drawn() {
    let mut app = App::new("dport = :443".to_owned(), true);
    for open in [false, true] {
        app.update(example());
        if open {
            press(&mut app, &[KeyCode::Enter]);
        }
        for width in [1, 2, 5, 19, 20, 40, 79, 80, 120, 300] {
            for height in [1, 2, 3, 5, 8, 13, 24, 80] {
                screen(&mut app, width, height);
            }
        }
    }
}

#[test]
fn ten_thousand_connections_can_be_scrolled() {
    let mut app = App::new(String::new(), false);
    let mut snapshot = example();
    let one = snapshot.connections[0].clone();
    snapshot.connections = (0..10_000).map(|cookie| Connection { cookie, ..one.clone() }).collect();
    app.update(snapshot);
    press(&mut app, &[KeyCode::End]);
    screen(&mut app, 80, 24);
    assert_eq!((app.table.selected(), app.selected), (Some(9999), Some(9999)));
    press(&mut app, &[KeyCode::PageUp, KeyCode::Home]);
    screen(&mut app, 80, 24);
    assert_eq!(app.table.selected(), Some(0));
}
