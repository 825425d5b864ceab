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

fn press(app: &mut App, codes: &[KeyCode]) -> Wish {
    codes.iter().fold(Wish::Draw, |_, code| app.key(KeyEvent::from(*code)))
}

#[test]
fn the_list_shows_totals_states_and_limits_and_follows_the_selected_row() {
    let mut app = App::new(String::new(), false);
    app.update(example());
    let lines = screen(&mut app, 80, 24);
    assert!(lines[0].contains("2 connections by rate"), "{lines:#?}");
    assert!(
        lines.iter().any(|l| l.starts_with("bbr     ProbeBW") && l.contains("bandwidth 97 %")),
        "{lines:#?}"
    );
    assert!(lines.iter().any(|l| l.starts_with("cubic") && l.contains("congestion window")), "{lines:#?}");
    // The second row is cubic's; once it is first, it is still the selected one.
    press(&mut app, &[KeyCode::Down, KeyCode::Down]);
    let cookie = app.selected;
    press(&mut app, &[KeyCode::Char('r')]);
    app.update(example());
    assert_eq!((app.selected, app.table.selected()), (cookie, Some(0)));
    assert_eq!(app.chosen().unwrap().controller.as_deref(), Some("cubic"));
}

#[test]
fn nothing_is_cut_at_any_width_from_eighty_columns_up() {
    for width in [80, 100, 140] {
        let mut app = App::new(String::new(), false);
        app.update(example());
        let totals = screen(&mut app, width, 24)[1..5].join(" ");
        let words = totals.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.matches("of it queueing 1.20 ms").count(), 2, "{width}: {totals}");
        press(&mut app, &[KeyCode::Down, KeyCode::Enter]);
        let lines = screen(&mut app, width, 24);
        let told = lines.join(" ");
        for said in ["delivery", "2.00 window", "in flight", "rate, Mbit/s"] {
            assert!(told.contains(said), "{width}: {said}: {lines:#?}");
        }
    }
}

#[test]
fn one_connection_is_told_in_full_with_its_history_also_after_it_closed() {
    let mut app = App::new(String::new(), true);
    for t in 0..30 {
        let mut snapshot = example();
        snapshot.t_s = f64::from(t);
        app.update(snapshot);
    }
    press(&mut app, &[KeyCode::Enter]);
    let lines = screen(&mut app, 200, 60);
    for said in [
        "nginx (4711)",
        "unit nginx.service",
        "ProbeBW, bandwidth 48.3 Mbit/s",
        "bandwidth 97 %",
        "rate, Mbit/s",
        "round trip, ms",
        "29 s ago",
    ] {
        assert!(lines.iter().any(|l| l.contains(said)), "{said}: {lines:#?}");
    }
    assert!(
        lines.iter().any(|l| l.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c))),
        "no line: {lines:#?}"
    );
    let mut gone = example();
    gone.connections.clear();
    app.update(gone);
    let lines = screen(&mut app, 100, 40);
    assert!(
        lines[0].contains("has closed") && lines.iter().any(|l| l.contains("rate, Mbit/s")),
        "{lines:#?}"
    );
    press(&mut app, &[KeyCode::Esc]);
    assert!(screen(&mut app, 100, 40).iter().any(|l| l.contains("no connection to show")));
}

#[test]
fn a_filter_is_typed_and_a_wrong_one_is_told() {
    let mut app = App::new(String::new(), false);
    app.update(example());
    let typed: Vec<KeyCode> = "/cc bb".chars().map(KeyCode::Char).collect();
    assert_eq!(press(&mut app, &typed), Wish::Draw);
    assert!(screen(&mut app, 80, 24).iter().any(|l| l == "filter: cc bb▏"));
    press(&mut app, &[KeyCode::Char(')'), KeyCode::Enter]);
    assert!(screen(&mut app, 80, 24).iter().any(|l| l.contains("closes nothing (character 6)")));
    let wish = press(&mut app, &[KeyCode::Backspace, KeyCode::Char('r'), KeyCode::Enter]);
    assert_eq!(wish, Wish::Filter(Filter::parse("cc bbr").unwrap()));
    assert_eq!(press(&mut app, &[KeyCode::Char('q')]), Wish::Quit);
}

#[test]
fn a_terminal_of_any_size_is_drawn_on() {
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
fn ten_thousand_connections_are_scrolled_through() {
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
