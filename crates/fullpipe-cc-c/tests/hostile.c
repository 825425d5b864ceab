/* Wrong calls: directed ones with the expected error, then random ones by a seed. Sanitizers watch the C side; canaries
 * around every object watch what the library writes.
 * usage: hostile SEED CALLS
 */
#include "fullpipe_cc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(int line, long got, long wanted, const char *call) {
    if (got != wanted) {
        fprintf(stderr, "hostile.c:%d: %s: %ld, expected %ld\n", line, call, got, wanted);
        failures++;
    }
}
#define EXPECT(call, wanted) expect(__LINE__, (long)(call), (long)(wanted), #call)

static void directed(void) {
    static fullpipe_cc cc, other, zero;
    static fullpipe_cc_spec spec, zero_spec;
    static fullpipe_cc_rtt rtt;
    static fullpipe_cc_episode episode;
    static fullpipe_cc_window_limited limited;
    static unsigned char bytes[sizeof(fullpipe_cc) + 8];
    fullpipe_cc_config config = {0};
    fullpipe_cc_event ack, old, losses;
    fullpipe_cc_ack_report report;
    fullpipe_cc_rate_sample sample;
    fullpipe_cc_snapshot snapshot;
    fullpipe_cc_episode_change change;
    fullpipe_cc_stamp stamp;
    fullpipe_cc_info info;
    fullpipe_cc_setting setting;
    char text[100], small[9];
    size_t length, i, j, settings = 0;

    EXPECT(fullpipe_cc_version(), FULLPIPE_CC_VERSION);
    EXPECT(fullpipe_cc_size() <= FULLPIPE_CC_SIZE, 1);
    EXPECT(fullpipe_cc_align() <= 8, 1);
    EXPECT(fullpipe_cc_spec_size() <= FULLPIPE_CC_SPEC_SIZE, 1);
    EXPECT(fullpipe_cc_stamp_size(), sizeof(fullpipe_cc_stamp));

    /* Specs. */
    EXPECT(fullpipe_cc_spec_parse(NULL, 3, &spec, text, sizeof text), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_spec_parse("bbr3", FULLPIPE_CC_TO_NUL, NULL, text, sizeof text), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_spec_parse("bbr3", SIZE_MAX / 2 + 1, &spec, text, sizeof text), FULLPIPE_CC_ERR_SIZE);
    EXPECT(fullpipe_cc_spec_parse("cubik", FULLPIPE_CC_TO_NUL, &spec, text, sizeof text), FULLPIPE_CC_ERR_SPEC);
    EXPECT(strcmp(text, "unknown controller `cubik`; did you mean `cubic`?"), 0);
    memset(small, 'x', sizeof small);
    EXPECT(fullpipe_cc_spec_parse("cubik", 5, &spec, small, 8), FULLPIPE_CC_ERR_SPEC);
    EXPECT(memcmp(small, "unknown\0x", 9), 0);
    EXPECT(fullpipe_cc_spec_parse("cubik", 5, &spec, small, 1), FULLPIPE_CC_ERR_SPEC);
    EXPECT(small[0], 0);
    EXPECT(fullpipe_cc_spec_parse("cubik", 5, &spec, small, 0), FULLPIPE_CC_ERR_SPEC);
    EXPECT(fullpipe_cc_spec_parse("cubik", 5, &spec, NULL, 100), FULLPIPE_CC_ERR_SPEC);
    EXPECT(fullpipe_cc_spec_parse("\xff\xfe", 2, &spec, text, sizeof text), FULLPIPE_CC_ERR_SPEC);
    /* No character is cut in two: the text begins "unknown controller `é`". */
    EXPECT(fullpipe_cc_spec_parse("\xc3\xa9", 2, &spec, text, 22), FULLPIPE_CC_ERR_SPEC);
    EXPECT(strcmp(text, "unknown controller `"), 0);
    EXPECT(fullpipe_cc_spec_parse("bbr3:beta_percent=50,", 20, &spec, text, sizeof text), FULLPIPE_CC_OK);
    EXPECT(text[0], 0);
    EXPECT(fullpipe_cc_spec_text(&spec, text, sizeof text, &length), FULLPIPE_CC_OK);
    EXPECT(strcmp(text, "bbr3:beta_percent=50"), 0);
    EXPECT(length, 20);
    EXPECT(fullpipe_cc_spec_text(&spec, text, 20, &length), FULLPIPE_CC_ERR_SIZE);
    EXPECT(strcmp(text, "bbr3:beta_percent=5"), 0);
    EXPECT(fullpipe_cc_spec_text(&spec, NULL, 20, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_spec_text(&zero_spec, text, 20, NULL), FULLPIPE_CC_ERR_STATE);

    /* Memory. */
    EXPECT(fullpipe_cc_init(NULL, sizeof cc, &spec, &config), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_init(&cc, fullpipe_cc_size() - 1, &spec, &config), FULLPIPE_CC_ERR_SIZE);
    EXPECT(fullpipe_cc_init(&cc, sizeof cc, NULL, &config), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_init(&cc, sizeof cc, &zero_spec, &config), FULLPIPE_CC_ERR_STATE);
    for (i = 1; i < 8; i++) {
        void *shifted = bytes + i;
        int aligned = (uintptr_t)shifted % fullpipe_cc_align() == 0;
        EXPECT(fullpipe_cc_init(shifted, sizeof cc, &spec, NULL), aligned ? FULLPIPE_CC_OK : FULLPIPE_CC_ERR_ALIGN);
    }
    config.reserved[1] = 1;
    EXPECT(fullpipe_cc_init(&cc, sizeof cc, &spec, &config), FULLPIPE_CC_ERR_VALUE);
    config.reserved[1] = 0;
    EXPECT(fullpipe_cc_init(&cc, fullpipe_cc_size(), &spec, &config), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_init(&other, sizeof other, &spec, NULL), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_window(&cc), 14480);
    EXPECT(fullpipe_cc_on_mtu(&zero, 1200), FULLPIPE_CC_ERR_STATE);
    EXPECT(fullpipe_cc_on_mtu(&cc, 0), FULLPIPE_CC_ERR_VALUE);
    EXPECT(fullpipe_cc_window(&zero) + fullpipe_cc_window(NULL), 0);
    EXPECT(fullpipe_cc_pacing_rate(NULL) + fullpipe_cc_send_quantum(NULL), 0);
    EXPECT(fullpipe_cc_next_departure(NULL) == FULLPIPE_CC_NONE, 1);
    EXPECT(fullpipe_cc_ready(NULL, 0), 0);
    EXPECT(fullpipe_cc_state(NULL)[0], 0);
    EXPECT(fullpipe_cc_get_recovery(NULL), FULLPIPE_CC_OPEN);
    EXPECT(fullpipe_cc_claims_ecn(NULL), 0);

    /* A copy that the C program makes itself. */
    memcpy(&zero, &cc, sizeof cc);
    EXPECT(fullpipe_cc_window(&zero), 14480);
    memset(&zero, 0, sizeof zero);

    /* Events. */
    EXPECT(fullpipe_cc_on_sent(&cc, 0, 1448, 0, 0, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_on_sent(&cc, 0, 1448, 0, 0, &stamp), FULLPIPE_CC_OK);
    EXPECT(stamp.id, 1);
    EXPECT(fullpipe_cc_ack_report_init(&report, 1000, 0), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_ack_report_init(NULL, 1000, 0), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_begin_ack(&cc, 1448, NULL), FULLPIPE_CC_ERR_NULL);
    memset(&ack, 0, sizeof ack);
    EXPECT(fullpipe_cc_on_acked(&cc, &ack, 1000, 1448, &stamp), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_finish_ack(&cc, &ack, &report, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_begin_ack(&cc, 1448, &ack), FULLPIPE_CC_OK);
    old = ack;
    EXPECT(fullpipe_cc_begin_ack(&cc, 1448, &losses), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_begin_losses(&cc, 1448, &losses), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_path_change(&cc, 0, &spec, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_copy(&zero, sizeof zero, &cc), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_acked(&other, &ack, 1000, 1448, &stamp), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_acked(&cc, &ack, 1000, 1448, &stamp), FULLPIPE_CC_OK);
    EXPECT(ack.newly_acked, 1448);
    EXPECT(fullpipe_cc_finish_losses(&cc, &ack), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_enter_loss(&cc, &ack, 1000, 0), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_enter_recovery_on_timer(&cc, &ack, 1000, 0), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_finish_ack(&cc, &ack, NULL, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_finish_ack(&cc, &ack, &report, &sample), FULLPIPE_CC_OK);
    EXPECT(sample.has_packet, 1);
    /* Neither the token nor a copy of it closes twice. */
    EXPECT(fullpipe_cc_finish_ack(&cc, &ack, &report, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_finish_ack(&cc, &old, &report, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_begin_losses(&cc, 0, &losses), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_finish_ack(&cc, &old, &report, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_acked(&cc, &losses, 1000, 1448, &stamp), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_enter_recovery(&cc, &losses, 1000), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_lost(&cc, &losses, 1000, 1448, &stamp, 1), FULLPIPE_CC_OK);
    EXPECT(losses.newly_lost, 1448);
    EXPECT(fullpipe_cc_enter_recovery_on_timer(&cc, &losses, 1000, 0), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_enter_loss(&cc, &losses, 1000, 0), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_get_recovery(&cc), FULLPIPE_CC_RECOVERY);
    EXPECT(fullpipe_cc_begin_ack(&cc, 0, &ack), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_cancel_event(&cc), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_finish_ack(&cc, &ack, &report, NULL), FULLPIPE_CC_ERR_EVENT);
    EXPECT(fullpipe_cc_on_path_change(&cc, 0, &zero_spec, NULL), FULLPIPE_CC_ERR_STATE);
    EXPECT(fullpipe_cc_on_path_change(&cc, 0, &spec, NULL), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_delivered(&cc) + fullpipe_cc_lost(&cc), 0);
    EXPECT(fullpipe_cc_copy(&zero, 8, &cc), FULLPIPE_CC_ERR_SIZE);
    EXPECT(fullpipe_cc_copy(&zero, sizeof zero, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_get_snapshot(&cc, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_get_snapshot(&cc, &snapshot), FULLPIPE_CC_OK);
    EXPECT(strcmp(snapshot.state, "Startup"), 0);

    /* The helpers. */
    EXPECT(fullpipe_cc_rtt_on_sample(&rtt, 1, 1), FULLPIPE_CC_ERR_STATE);
    EXPECT(fullpipe_cc_rtt_init(NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_rtt_init(&rtt), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_rtt_smoothed(&rtt) == FULLPIPE_CC_NONE, 1);
    EXPECT(fullpipe_cc_episode_update(&episode, 0, 0, &change), FULLPIPE_CC_ERR_STATE);
    EXPECT(fullpipe_cc_episode_init(&episode), FULLPIPE_CC_OK);
    EXPECT(fullpipe_cc_episode_update(&episode, 0, 0, NULL), FULLPIPE_CC_ERR_NULL);
    EXPECT(fullpipe_cc_window_limited_on_limited(&limited, 0, 0), FULLPIPE_CC_ERR_STATE);
    EXPECT(fullpipe_cc_window_limited_is_limited(&limited, 0), 0);

    /* The list of controllers: each default value is valid. */
    EXPECT(fullpipe_cc_get_controller(fullpipe_cc_controllers(), &info), FULLPIPE_CC_ERR_VALUE);
    EXPECT(fullpipe_cc_get_controller(0, NULL), FULLPIPE_CC_ERR_NULL);
    for (i = 0; i < fullpipe_cc_controllers(); i++) {
        EXPECT(fullpipe_cc_get_controller(i, &info), FULLPIPE_CC_OK);
        EXPECT(info.about.length > 0, 1);
        for (j = 0; j < info.settings; j++) {
            EXPECT(fullpipe_cc_get_setting(i, j, &setting), FULLPIPE_CC_OK);
            snprintf(text, sizeof text, "%.*s:%.*s=%.*s", (int)info.name.length, info.name.data, (int)setting.key.length,
                     setting.key.data, (int)setting.default_value.length, setting.default_value.data);
            EXPECT(fullpipe_cc_spec_parse(text, strlen(text), &zero_spec, NULL, 0), FULLPIPE_CC_OK);
            settings++;
        }
        EXPECT(fullpipe_cc_get_setting(i, j, &setting), FULLPIPE_CC_ERR_VALUE);
    }
    EXPECT(settings > 20, 1);
    EXPECT(fullpipe_cc_get_info(&cc, &info), FULLPIPE_CC_OK);
    EXPECT(memcmp(info.name.data, "bbr3", info.name.length), 0);
    EXPECT(fullpipe_cc_get_info(NULL, &info), FULLPIPE_CC_ERR_NULL);
}

/* Objects with canaries on both sides. */
#define GUARD UINT64_C(0x5ca1ab1e0ddba11)
#define OBJECTS 4
#define GUARDED(type, name)                                                                                            \
    static struct {                                                                                                    \
        uint64_t before;                                                                                               \
        type value;                                                                                                    \
        uint64_t after;                                                                                                \
    } name[OBJECTS]

GUARDED(fullpipe_cc, ccs);
GUARDED(fullpipe_cc_spec, specs);
GUARDED(fullpipe_cc_rtt, rtts);
GUARDED(fullpipe_cc_episode, episodes);
GUARDED(fullpipe_cc_window_limited, limits);
GUARDED(fullpipe_cc_event, events);
GUARDED(fullpipe_cc_stamp, stamps);
GUARDED(fullpipe_cc_ack_report, reports);
GUARDED(fullpipe_cc_rate_sample, samples);
GUARDED(fullpipe_cc_snapshot, snapshots);
GUARDED(fullpipe_cc_config, configs);
GUARDED(fullpipe_cc_info, infos);
GUARDED(fullpipe_cc_setting, settings);
GUARDED(fullpipe_cc_episode_change, changes);

#define EACH(what)                                                                                                     \
    what(ccs) what(specs) what(rtts) what(episodes) what(limits) what(events) what(stamps) what(reports) what(samples) \
        what(snapshots) what(configs) what(infos) what(settings) what(changes)
#define SET(name) name[i].before = name[i].after = GUARD;
#define CHECK(name)                                                                                                    \
    if (name[i].before != GUARD || name[i].after != GUARD) {                                                           \
        fprintf(stderr, "hostile.c: a call wrote outside of %s[%u]\n", #name, (unsigned)i);                            \
        exit(1);                                                                                                       \
    }

static void guards(int set) {
    size_t i;
    for (i = 0; i < OBJECTS; i++) {
        if (set) {
            EACH(SET)
        } else {
            EACH(CHECK)
        }
    }
}

static uint64_t random_state;

static uint64_t draw(void) {
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Small, middling and enormous numbers alike. */
static uint64_t number(void) {
    uint64_t z = draw();
    switch (draw() % 8) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return z;
    case 3:
        return UINT64_C(1) << (z % 64);
    case 4:
        return z % (UINT64_C(1) << 32);
    default:
        return z % 100000;
    }
}

static uint64_t now, acks_finished;

static uint64_t any_time(void) {
    now += draw() % 1000000;
    return draw() % 8 == 0 ? number() : now;
}

#define PICK(name) (draw() % 32 == 0 ? NULL : &name[draw() % OBJECTS].value)

static void any_call(void) {
    static const char *const texts[] = {"bbr", "bbr3", "cubic", "reno", "hybla", "fixed", "bbr3:variant=linux", "cubic:hystart=plus",
                                        "bbr3:variant", "", ":", "x:y=z", "bbr3:beta_percent=4294967296", "fixed:window=1",
                                        "cubic:beta=1", "bbr:startup_pacing_gain=99999999999999999999"};
    size_t own = draw() % OBJECTS; /* mostly a controller and its own event, so that events also end */
    fullpipe_cc *cc = draw() % 32 ? &ccs[own].value : NULL;
    fullpipe_cc_event *event = draw() % 8 ? &events[own].value : PICK(events);
    fullpipe_cc_stamp *stamp = PICK(stamps);
    fullpipe_cc_rtt *rtt = PICK(rtts);
    fullpipe_cc_episode *episode = PICK(episodes);
    fullpipe_cc_window_limited *limited = PICK(limits);
    fullpipe_cc_snapshot *snapshot;
    char text[64];
    size_t length;
    const char *state;

    switch (draw() % 64) {
    case 0:
        if (draw() % 8 == 0) {
            state = texts[draw() % (sizeof texts / sizeof *texts)];
            length = draw() % 2 ? FULLPIPE_CC_TO_NUL : strlen(state);
            fullpipe_cc_spec_parse(state, length, PICK(specs), draw() % 4 ? text : NULL, draw() % (sizeof text + 1));
        }
        break;
    case 1:
        fullpipe_cc_spec_text(PICK(specs), draw() % 8 ? text : NULL, draw() % (sizeof text + 1), draw() % 2 ? &length : NULL);
        break;
    case 2:
        if (draw() % 16 == 0) {
            fullpipe_cc_config *config = PICK(configs);
            if (config) {
                config->smss = (uint32_t)number();
                config->initial_cwnd = number();
                config->seed = number();
                config->no_selective_acks = (uint8_t)draw();
                config->paced_by_window = (uint8_t)draw();
                config->reserved[0] = draw() % 8 == 0;
            }
            fullpipe_cc_init(cc, draw() % 8 ? sizeof *cc : (size_t)draw() % sizeof *cc, PICK(specs), config);
        }
        break;
    case 3:
        if (draw() % 16 == 0) {
            fullpipe_cc *from = PICK(ccs);
            if (from != cc) { /* objects do not overlap */
                fullpipe_cc_copy(cc, draw() % 8 ? sizeof *cc : (size_t)draw() % sizeof *cc, from);
            }
        }
        break;
    case 4:
        if (draw() % 16 == 0) {
            fullpipe_cc_on_path_change(cc, any_time(), PICK(specs), PICK(configs));
        }
        break;
    case 5:
        fullpipe_cc_on_handshake(cc, any_time(), number());
        break;
    case 6:
        fullpipe_cc_on_mtu(cc, (uint32_t)number());
        break;
    case 7:
    case 8:
    case 9:
    case 10:
    case 11:
    case 12:
        fullpipe_cc_on_sent(cc, any_time(), number(), number(), (int)draw(), stamp);
        break;
    case 13:
    case 14:
        fullpipe_cc_on_batch_sent(cc, any_time(), number(), number());
        break;
    case 15:
        fullpipe_cc_mark_app_limited(cc, number());
        break;
    case 16:
        fullpipe_cc_on_packet_discarded(cc, number());
        break;
    case 17:
    case 18:
    case 19:
    case 20:
        fullpipe_cc_begin_ack(cc, number(), event);
        break;
    case 21:
    case 22:
    case 23:
    case 24:
        fullpipe_cc_on_acked(cc, event, any_time(), number(), stamp);
        break;
    case 25:
    case 26:
        fullpipe_cc_on_lost(cc, event, any_time(), number(), stamp, (int)draw());
        break;
    case 27:
        fullpipe_cc_enter_recovery(cc, event, any_time());
        break;
    case 28:
        fullpipe_cc_on_persistent_congestion(cc, event, any_time(), number());
        break;
    case 29:
    case 30:
    case 31:
    case 32:
    case 33: {
        fullpipe_cc_ack_report *report = PICK(reports);
        if (report) {
            fullpipe_cc_ack_report_init(report, any_time(), number());
            report->rtt = number();
            report->srtt = number();
            report->min_rtt = number();
            report->outstanding = number();
            report->ce_count = (uint32_t)number();
            report->not_advanced = (uint8_t)draw();
            report->cwnd_limited = (uint8_t)draw();
            report->disorder = (uint8_t)draw();
            report->single_small_packet = (uint8_t)draw();
        }
        acks_finished += fullpipe_cc_finish_ack(cc, event, report, PICK(samples)) == FULLPIPE_CC_OK;
        break;
    }
    case 34:
    case 35:
        fullpipe_cc_begin_losses(cc, number(), event);
        break;
    case 36:
        fullpipe_cc_enter_recovery_on_timer(cc, event, any_time(), number());
        break;
    case 37:
        fullpipe_cc_enter_loss(cc, event, any_time(), number());
        break;
    case 38:
        fullpipe_cc_finish_losses(cc, event);
        break;
    case 39:
        if (draw() % 4 == 0) {
            fullpipe_cc_cancel_event(cc);
        }
        break;
    case 40:
        fullpipe_cc_exit_recovery(cc, any_time(), number());
        break;
    case 41:
        fullpipe_cc_undo(cc, any_time(), number());
        break;
    case 42:
        fullpipe_cc_reduce_for_repaired_loss(cc, any_time(), number());
        break;
    case 43:
        if (cc && fullpipe_cc_on_packet_discarded(cc, 0) == FULLPIPE_CC_OK && fullpipe_cc_window(cc) == 0) {
            fprintf(stderr, "hostile.c: a window closed for good\n");
            exit(1);
        }
        break;
    case 44:
        fullpipe_cc_pacing_rate(cc);
        fullpipe_cc_send_quantum(cc);
        break;
    case 45:
        fullpipe_cc_ready(cc, number());
        fullpipe_cc_next_departure(cc);
        break;
    case 46:
        fullpipe_cc_delivered(cc);
        fullpipe_cc_lost(cc);
        break;
    case 47:
        fullpipe_cc_get_recovery(cc);
        fullpipe_cc_claims_ecn(cc);
        break;
    case 48:
        state = fullpipe_cc_state(cc);
        if (strlen(state) > 30 || strcmp(state, "Unknown") == 0) {
            fprintf(stderr, "hostile.c: state %s\n", state);
            exit(1);
        }
        break;
    case 49:
        snapshot = PICK(snapshots);
        if (fullpipe_cc_get_snapshot(cc, snapshot) == FULLPIPE_CC_OK && strlen(snapshot->state) > 30) {
            exit(1);
        }
        break;
    case 50:
        fullpipe_cc_get_controller((size_t)number() % 8, PICK(infos));
        break;
    case 51:
        fullpipe_cc_get_setting((size_t)number() % 8, (size_t)number() % 32, PICK(settings));
        break;
    case 52:
        fullpipe_cc_get_info(cc, PICK(infos));
        break;
    case 53:
        if (draw() % 16 == 0) {
            fullpipe_cc_rtt_init(rtt);
            fullpipe_cc_episode_init(episode);
            fullpipe_cc_window_limited_init(limited);
        }
        break;
    case 54:
        fullpipe_cc_rtt_on_sample(rtt, number(), number());
        fullpipe_cc_rtt_on_persistent_congestion(rtt);
        break;
    case 55:
        fullpipe_cc_rtt_latest(rtt);
        fullpipe_cc_rtt_smoothed(rtt);
        fullpipe_cc_rtt_variation(rtt);
        fullpipe_cc_rtt_min(rtt);
        fullpipe_cc_rtt_probe_timeout(rtt);
        break;
    case 56:
        fullpipe_cc_episode_on_acked(episode, number());
        fullpipe_cc_episode_on_lost(episode, number(), number());
        break;
    case 57:
        fullpipe_cc_episode_update(episode, number(), number(), PICK(changes));
        fullpipe_cc_episode_is_active(episode);
        break;
    case 58:
        fullpipe_cc_episode_restart(episode, number());
        break;
    case 59:
        fullpipe_cc_window_limited_on_limited(limited, number(), number());
        fullpipe_cc_window_limited_is_limited(limited, number());
        break;
    case 60: /* a token or stamp that the library did not write, or a stale copy of one */
        if (event && draw() % 8 == 0) {
            memcpy(event, &events[draw() % OBJECTS].value, sizeof *event * (draw() % 2));
            event->kind = (uint32_t)draw() % 4;
            event->serial = draw() % 4 ? event->serial : number();
        }
        break;
    case 61:
        if (stamp) {
            stamp->sent_at = number();
            stamp->delivered = number();
            stamp->delivered_at = number();
            stamp->first_sent_at = number();
            stamp->lost = number();
            stamp->tx_in_flight = number();
            stamp->id = number();
            stamp->app_limited = (uint32_t)draw();
        }
        break;
    case 62: /* memory that was reused */
        if (cc && draw() % 256 == 0) {
            memset(cc, (int)draw(), sizeof *cc);
        }
        break;
    default:
        fullpipe_cc_rtt_init(PICK(rtts));
        break;
    }
}

int main(int argc, char **argv) {
    uint64_t calls, i;
    if (argc != 3) {
        return 2;
    }
    directed();
    if (failures > 0) {
        return 1;
    }
    random_state = strtoull(argv[1], NULL, 10);
    calls = strtoull(argv[2], NULL, 10);
    guards(1);
    for (i = 0; i < OBJECTS; i++) {
        fullpipe_cc_spec_parse(i % 2 ? "bbr3" : "cubic", FULLPIPE_CC_TO_NUL, &specs[i].value, NULL, 0);
        fullpipe_cc_init(&ccs[i].value, sizeof ccs[i].value, &specs[i].value, NULL);
    }
    for (i = 0; i < calls; i++) {
        any_call();
        if (i % 64 == 0) {
            guards(0);
        }
    }
    guards(0);
    printf("%" PRIu64 " random calls finished %" PRIu64 " ACKs\n", calls, acks_finished);
    return acks_finished < calls / 200; /* otherwise most calls are refused */
}
