/* A whole sender on fullpipe_cc.h: flight list, round-trip time, loss detection, pacing and recovery, over a
 * simulated bottleneck of 10 Mbit/s and 40 ms with a queue of one bandwidth-delay product and 0.1 % random loss.
 * Prints the goodput of three controllers; fails if bbr3 uses less than 90 % of the link.
 *
 *     cc -std=c11 -I ../include sender.c libfullpipe_cc.a -o sender
 */
#include "fullpipe_cc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)
#define MS (SECOND / 1000)

/* The path. */
#define LINK_RATE UINT64_C(1250000) /* bytes per second */
#define PATH_RTT (40 * MS)
#define QUEUE UINT64_C(50000) /* bytes */
#define LOST_OF 1000          /* one packet of so many */

/* The sender. */
#define PACKET UINT64_C(1200)
#define REORDERING 3 /* packets: RFC 9002 section 6.1.1 */
#define FLIGHT 4096  /* packets in flight at most: a power of two */
#define DURATION (20 * SECOND)

struct packet {
    fullpipe_cc_stamp stamp;
    int gone;        /* acknowledged or lost */
    uint64_t ack_at; /* in the simulated network: when its ACK arrives; FULLPIPE_CC_NONE if it was dropped */
};

struct sender {
    fullpipe_cc cc;
    fullpipe_cc_rtt rtt;
    fullpipe_cc_episode episode;
    fullpipe_cc_window_limited limited;
    struct packet flight[FLIGHT]; /* by packet number modulo FLIGHT */
    uint64_t oldest, next;        /* packet numbers: of the oldest in flight, and of the next to be sent */
    uint64_t inflight;            /* bytes */
    uint64_t to_repair;           /* lost packets whose data was not retransmitted yet */
    uint64_t probe_at;            /* when the probe timer fires */
    uint64_t now;
    uint64_t link_free; /* the network: when the link has sent its queue */
    uint64_t next_ack;  /* the network: the number of the packet whose ACK arrives next, or was dropped */
    uint32_t random;
};

static void must(fullpipe_cc_status status, const char *call) {
    if (status != FULLPIPE_CC_OK) {
        fprintf(stderr, "%s: error %d\n", call, (int)status);
        exit(2);
    }
}
#define MUST(call) must((call), #call)

static struct packet *packet(struct sender *s, uint64_t number) {
    return &s->flight[number % FLIGHT];
}

/* The network: when the ACK of a packet sent now arrives. */
static uint64_t through_the_path(struct sender *s) {
    uint64_t waiting = s->link_free > s->now ? s->link_free - s->now : 0;
    s->random = s->random * UINT32_C(1664525) + UINT32_C(1013904223);
    if (waiting * LINK_RATE / SECOND + PACKET > QUEUE || (s->random >> 8) % LOST_OF == 0) {
        return FULLPIPE_CC_NONE;
    }
    s->link_free = s->now + waiting + PACKET * SECOND / LINK_RATE;
    return s->link_free + PATH_RTT;
}

/* The network: when the next ACK arrives. */
static uint64_t next_ack_at(struct sender *s) {
    while (s->next_ack < s->next && packet(s, s->next_ack)->ack_at == FULLPIPE_CC_NONE) {
        s->next_ack++;
    }
    return s->next_ack < s->next ? packet(s, s->next_ack)->ack_at : FULLPIPE_CC_NONE;
}

/* QUIC's probe timeout, which is not a loss. */
static void set_probe_timer(struct sender *s) {
    uint64_t timeout = fullpipe_cc_rtt_probe_timeout(&s->rtt);
    s->probe_at = s->now + (timeout == FULLPIPE_CC_NONE ? SECOND : timeout);
}

static void send_packet(struct sender *s, int paced) {
    struct packet *p = packet(s, s->next);
    MUST(fullpipe_cc_on_sent(&s->cc, s->now, PACKET, s->inflight, s->to_repair > 0, &p->stamp));
    if (paced) {
        MUST(fullpipe_cc_on_batch_sent(&s->cc, s->now, PACKET, 1));
    }
    p->gone = 0;
    p->ack_at = through_the_path(s);
    s->next++;
    s->inflight += PACKET;
    s->to_repair -= s->to_repair > 0;
    set_probe_timer(s);
}

static int has_room(const struct sender *s) {
    return s->inflight + PACKET <= fullpipe_cc_window(&s->cc) && s->next - s->oldest < FLIGHT;
}

/* The ACK of packet `number` arrives: packets sent REORDERING before it are lost. */
static void on_ack(struct sender *s, uint64_t number) {
    struct packet *p = packet(s, number);
    fullpipe_cc_event event;
    fullpipe_cc_ack_report report;
    fullpipe_cc_episode_change change;
    uint64_t lost, last_lost = FULLPIPE_CC_NONE, inflight = s->inflight;

    if (p->gone) {
        return; /* It was marked lost: too late. Not in this network, which does not reorder. */
    }
    MUST(fullpipe_cc_begin_ack(&s->cc, s->inflight, &event));
    MUST(fullpipe_cc_on_acked(&s->cc, &event, s->now, PACKET, &p->stamp));
    MUST(fullpipe_cc_episode_on_acked(&s->episode, number));
    MUST(fullpipe_cc_rtt_on_sample(&s->rtt, s->now - p->stamp.sent_at, 0));
    p->gone = 1;
    s->inflight -= PACKET;

    for (lost = s->oldest; lost + REORDERING <= number; lost++) {
        struct packet *l = packet(s, lost);
        if (l->gone) {
            continue;
        }
        MUST(fullpipe_cc_on_lost(&s->cc, &event, s->now, PACKET, &l->stamp, last_lost + 1 != lost));
        MUST(fullpipe_cc_episode_on_lost(&s->episode, lost, s->next));
        l->gone = 1;
        s->inflight -= PACKET;
        s->to_repair++;
        last_lost = lost;
    }
    while (s->oldest < s->next && packet(s, s->oldest)->gone) {
        s->oldest++;
    }

    MUST(fullpipe_cc_episode_update(&s->episode, s->oldest < s->next ? s->oldest : FULLPIPE_CC_NONE, s->next,
                                    &change));
    if (change.exit_recovery) {
        MUST(fullpipe_cc_exit_recovery(&s->cc, s->now, s->inflight));
    }
    if (change.enter_recovery) {
        MUST(fullpipe_cc_enter_recovery(&s->cc, &event, s->now));
    }
    MUST(fullpipe_cc_ack_report_init(&report, s->now, s->inflight));
    report.rtt = fullpipe_cc_rtt_latest(&s->rtt);
    report.srtt = fullpipe_cc_rtt_smoothed(&s->rtt);
    report.min_rtt = fullpipe_cc_rtt_min(&s->rtt);
    if (inflight + PACKET > fullpipe_cc_window(&s->cc)) {
        MUST(fullpipe_cc_window_limited_on_limited(&s->limited, fullpipe_cc_delivered(&s->cc), inflight));
    }
    report.cwnd_limited =
        (uint8_t)fullpipe_cc_window_limited_is_limited(&s->limited, fullpipe_cc_delivered(&s->cc));
    MUST(fullpipe_cc_finish_ack(&s->cc, &event, &report, NULL));
    set_probe_timer(s);
}

/* Sends for DURATION under a controller; returns the share of the link that it used. */
static double run(const char *controller) {
    static struct sender s; /* no allocation here, either */
    fullpipe_cc_spec spec;
    fullpipe_cc_config config = {0};
    fullpipe_cc_snapshot snapshot;
    char error[200];
    double goodput;

    if (fullpipe_cc_spec_parse(controller, FULLPIPE_CC_TO_NUL, &spec, error, sizeof error) != FULLPIPE_CC_OK) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
    memset(&s, 0, sizeof s);
    config.smss = PACKET;
    config.paced_by_window = 1;
    config.seed = 7; /* a real sender passes a random number */
    MUST(fullpipe_cc_init(&s.cc, sizeof s.cc, &spec, &config));
    MUST(fullpipe_cc_rtt_init(&s.rtt));
    MUST(fullpipe_cc_episode_init(&s.episode));
    MUST(fullpipe_cc_window_limited_init(&s.limited));
    set_probe_timer(&s);

    while (s.now < DURATION) {
        uint64_t at = next_ack_at(&s);
        if (has_room(&s)) {
            if (fullpipe_cc_ready(&s.cc, s.now)) {
                send_packet(&s, 1);
                continue;
            }
            if (fullpipe_cc_next_departure(&s.cc) < at) {
                at = fullpipe_cc_next_departure(&s.cc);
            }
        }
        if (s.probe_at < at) {
            s.now = s.probe_at;
            send_packet(&s, 0);
        } else {
            s.now = at;
            if (at == next_ack_at(&s)) {
                on_ack(&s, s.next_ack++);
            }
        }
    }
    goodput = (double)fullpipe_cc_delivered(&s.cc) / ((double)s.now / (double)SECOND);
    MUST(fullpipe_cc_get_snapshot(&s.cc, &snapshot));
    printf("%-6s %5.2f Mbit/s, %4" PRIu64 " kB lost, round trip %3" PRIu64 " ms, state %s\n", controller,
           goodput * 8 / 1e6, fullpipe_cc_lost(&s.cc) / 1000, fullpipe_cc_rtt_smoothed(&s.rtt) / MS, snapshot.state);
    return goodput / (double)LINK_RATE;
}

int main(void) {
    double bbr3 = run("bbr3");
    run("bbr");
    run("cubic");
    if (bbr3 < 0.9) {
        fprintf(stderr, "bbr3 used %.0f %% of the link, expected at least 90 %%\n", bbr3 * 100);
        return 1;
    }
    return 0;
}
