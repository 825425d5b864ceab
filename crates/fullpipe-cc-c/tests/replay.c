/* Drives a controller by a sequence of events that a seed determines, and prints a digest of everything it answers.
 * tests/c_programs.rs makes the same calls of the Rust interface: the two must agree.
 * usage: replay SPEC SEED STEPS PACED
 */
#include "fullpipe_cc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHT 512

static uint64_t random_state, digest = UINT64_C(0xcbf29ce484222325);

static uint64_t draw(uint64_t below) {
    uint64_t z = random_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void note(uint64_t value) {
    digest = (digest ^ value) * UINT64_C(0x100000001b3);
    digest ^= digest >> 29;
}

static void must(int line, fullpipe_cc_status status) {
    if (status != FULLPIPE_CC_OK) {
        fprintf(stderr, "replay.c:%d: error %d\n", line, (int)status);
        exit(2);
    }
}
#define MUST(call) must(__LINE__, (call))

struct packet {
    uint64_t number, bytes;
    fullpipe_cc_stamp stamp;
};

static struct packet flight[FLIGHT];
static size_t packets;
static uint64_t inflight;

static struct packet oldest_packet(void) {
    struct packet p = flight[0];
    packets--;
    memmove(flight, flight + 1, packets * sizeof *flight);
    inflight -= p.bytes;
    return p;
}

static void note_all(fullpipe_cc *cc, fullpipe_cc_rtt *rtt, uint64_t now) {
    fullpipe_cc_snapshot s;
    const char *state;
    note(fullpipe_cc_window(cc));
    note(fullpipe_cc_pacing_rate(cc));
    note(fullpipe_cc_send_quantum(cc));
    note(fullpipe_cc_ready(cc, now));
    note(fullpipe_cc_next_departure(cc));
    note(fullpipe_cc_delivered(cc));
    note(fullpipe_cc_lost(cc));
    note((uint64_t)fullpipe_cc_get_recovery(cc));
    note(fullpipe_cc_claims_ecn(cc));
    for (state = fullpipe_cc_state(cc); *state; state++) {
        note((uint64_t)*state);
    }
    MUST(fullpipe_cc_get_snapshot(cc, &s));
    if (strcmp(s.state, fullpipe_cc_state(cc)) != 0) {
        exit(3);
    }
    note(s.cwnd);
    note(s.ssthresh);
    note(s.pacing_rate);
    note(s.bw);
    note(s.max_bw);
    note(s.bw_shortterm);
    note(s.min_rtt);
    note(s.pacing_gain);
    note(s.cwnd_gain);
    note(s.inflight_longterm);
    note(s.inflight_shortterm);
    note(s.rounds);
    note(fullpipe_cc_rtt_latest(rtt));
    note(fullpipe_cc_rtt_smoothed(rtt));
    note(fullpipe_cc_rtt_variation(rtt));
    note(fullpipe_cc_rtt_min(rtt));
    note(fullpipe_cc_rtt_probe_timeout(rtt));
}

int main(int argc, char **argv) {
    fullpipe_cc cc, copy;
    fullpipe_cc_spec spec;
    fullpipe_cc_rtt rtt;
    fullpipe_cc_episode episode;
    fullpipe_cc_window_limited limited;
    fullpipe_cc_config config = {0};
    char text[200];
    size_t length = 0;
    uint64_t steps, step, now = 1000000, next = 0;

    if (argc != 5) {
        return 2;
    }
    if (fullpipe_cc_spec_parse(argv[1], strlen(argv[1]), &spec, text, sizeof text) != FULLPIPE_CC_OK) {
        fprintf(stderr, "%s\n", text);
        return 2;
    }
    MUST(fullpipe_cc_spec_text(&spec, text, sizeof text, &length));
    random_state = strtoull(argv[2], NULL, 10);
    steps = strtoull(argv[3], NULL, 10);
    config.smss = 1200;
    config.seed = 5;
    config.paced_by_window = (uint8_t)atoi(argv[4]);
    MUST(fullpipe_cc_init(&cc, sizeof cc, &spec, &config));
    MUST(fullpipe_cc_rtt_init(&rtt));
    MUST(fullpipe_cc_episode_init(&episode));
    MUST(fullpipe_cc_window_limited_init(&limited));
    MUST(fullpipe_cc_on_handshake(&cc, now, 40000000));

    for (step = 0; step < steps; step++) {
        uint64_t kind = draw(1000);
        if (kind < 500) {
            uint64_t bytes = draw(8) == 0 ? 100 : 1200;
            int retransmit = draw(20) == 0;
            int open = inflight + bytes <= fullpipe_cc_window(&cc);
            if (!open) {
                MUST(fullpipe_cc_window_limited_on_limited(&limited, fullpipe_cc_delivered(&cc), inflight));
            }
            if (open && packets < FLIGHT && fullpipe_cc_ready(&cc, now)) {
                struct packet *p = &flight[packets++];
                p->number = next++;
                p->bytes = bytes;
                MUST(fullpipe_cc_on_sent(&cc, now, bytes, inflight, retransmit, &p->stamp));
                note(p->stamp.id);
                note(p->stamp.tx_in_flight);
                note(p->stamp.app_limited);
                MUST(fullpipe_cc_on_batch_sent(&cc, now, bytes, 1));
                inflight += bytes;
            } else {
                now += draw(500000);
            }
        } else if (kind < 850) {
            uint64_t count = 1 + draw(3), before = inflight;
            fullpipe_cc_event event;
            fullpipe_cc_ack_report report;
            fullpipe_cc_rate_sample sample;
            fullpipe_cc_episode_change change;
            int first_lost = 1;
            now += draw(2000000);
            MUST(fullpipe_cc_begin_ack(&cc, before, &event));
            while (count-- > 0 && packets > 0) {
                struct packet p = oldest_packet();
                if (draw(40) == 0) {
                    MUST(fullpipe_cc_on_lost(&cc, &event, now, p.bytes, &p.stamp, first_lost));
                    MUST(fullpipe_cc_episode_on_lost(&episode, p.number, next));
                    first_lost = 0;
                } else {
                    MUST(fullpipe_cc_on_acked(&cc, &event, now, p.bytes, &p.stamp));
                    MUST(fullpipe_cc_episode_on_acked(&episode, p.number));
                    MUST(fullpipe_cc_rtt_on_sample(&rtt, now - p.stamp.sent_at + 10000000, draw(1000000)));
                }
            }
            note(event.newly_acked);
            note(event.newly_lost);
            if (draw(400) == 0) {
                MUST(fullpipe_cc_on_persistent_congestion(&cc, &event, now, inflight));
                MUST(fullpipe_cc_rtt_on_persistent_congestion(&rtt));
                MUST(fullpipe_cc_episode_restart(&episode, next));
            }
            MUST(fullpipe_cc_episode_update(&episode, packets ? flight[0].number : FULLPIPE_CC_NONE, next, &change));
            if (change.exit_recovery) {
                MUST(fullpipe_cc_exit_recovery(&cc, now, inflight));
            }
            if (change.enter_recovery) {
                MUST(fullpipe_cc_enter_recovery(&cc, &event, now));
            }
            note(fullpipe_cc_episode_is_active(&episode));
            MUST(fullpipe_cc_ack_report_init(&report, now, inflight));
            report.rtt = fullpipe_cc_rtt_latest(&rtt);
            report.srtt = fullpipe_cc_rtt_smoothed(&rtt);
            report.min_rtt = fullpipe_cc_rtt_min(&rtt);
            report.not_advanced = draw(10) == 0;
            report.ce_count = draw(50) == 0;
            report.disorder = draw(10) == 0;
            report.single_small_packet = draw(30) == 0;
            report.cwnd_limited = fullpipe_cc_window_limited_is_limited(&limited, fullpipe_cc_delivered(&cc));
            MUST(fullpipe_cc_finish_ack(&cc, &event, &report, &sample));
            note(sample.rate);
            note(sample.delivered);
            note(sample.interval);
            note(sample.prior_delivered);
            note(sample.tx_in_flight);
            note(sample.lost);
            note(sample.app_limited);
            note(sample.has_packet);
        } else if (kind < 865) {
            fullpipe_cc_event event;
            uint64_t close = draw(3);
            MUST(fullpipe_cc_begin_losses(&cc, inflight, &event));
            if (packets > 0) {
                struct packet p = oldest_packet();
                MUST(fullpipe_cc_on_lost(&cc, &event, now, p.bytes, &p.stamp, 1));
            }
            note(event.newly_lost);
            if (close == 0) {
                MUST(fullpipe_cc_enter_recovery_on_timer(&cc, &event, now, inflight));
                MUST(fullpipe_cc_episode_restart(&episode, next));
            } else if (close == 1 && draw(4) == 0) {
                MUST(fullpipe_cc_enter_loss(&cc, &event, now, inflight));
                MUST(fullpipe_cc_episode_restart(&episode, next));
            } else {
                MUST(fullpipe_cc_finish_losses(&cc, &event));
            }
        } else if (kind < 868) {
            MUST(fullpipe_cc_undo(&cc, now, inflight));
            MUST(fullpipe_cc_episode_init(&episode));
        } else if (kind < 870) {
            MUST(fullpipe_cc_reduce_for_repaired_loss(&cc, now, inflight));
        } else if (kind < 872) {
            MUST(fullpipe_cc_on_mtu(&cc, (uint32_t)(1000 + draw(500))));
        } else if (kind < 880) {
            MUST(fullpipe_cc_mark_app_limited(&cc, inflight));
        } else if (kind < 885) {
            if (packets > 0) {
                MUST(fullpipe_cc_on_packet_discarded(&cc, oldest_packet().bytes));
            }
        } else if (kind < 886) {
            /* Packets of the old path stay in the list, and are ignored. */
            MUST(fullpipe_cc_on_path_change(&cc, now, &spec, &config));
            MUST(fullpipe_cc_rtt_init(&rtt));
            MUST(fullpipe_cc_episode_init(&episode));
            MUST(fullpipe_cc_window_limited_init(&limited));
        } else if (kind < 890) {
            /* The copy continues. */
            MUST(fullpipe_cc_copy(&copy, sizeof copy, &cc));
            memset(&cc, 0xa5, sizeof cc);
            MUST(fullpipe_cc_copy(&cc, sizeof cc, &copy));
        } else {
            now += draw(3000000);
        }
        note_all(&cc, &rtt, now);
    }
    printf("%s %016" PRIx64 " delivered %" PRIu64 " lost %" PRIu64 "\n", text, digest, fullpipe_cc_delivered(&cc),
           fullpipe_cc_lost(&cc));
    return 0;
}
