// Congestion control (BBR v1 and v3, CUBIC, NewReno, Hybla) for transports written in C.
//
// The library allocates nothing, keeps no global state, reads no clock, and calls nothing but
// memcpy, memmove, memset, memcmp, bcmp and strlen. It never calls back. A transport owns packets,
// timers and loss detection, reports events, and obeys three values: window, pacing rate and send
// quantum. examples/sender.c is a whole sender.
//
// Order of calls: fullpipe_cc_spec_parse once per program, fullpipe_cc_init per connection; then
//
// - Sending: while fullpipe_cc_ready and the bytes in flight plus the packet are at most
//   fullpipe_cc_window, up to fullpipe_cc_send_quantum bytes leave together:
//   fullpipe_cc_on_sent for each packet, whose stamp is kept with it, then
//   fullpipe_cc_on_batch_sent once.
// - An ACK: fullpipe_cc_begin_ack; in any order fullpipe_cc_on_acked for each packet newly
//   acknowledged, fullpipe_cc_on_lost for each packet that it shows to be lost,
//   fullpipe_cc_exit_recovery, fullpipe_cc_undo or fullpipe_cc_enter_recovery if recovery ends or
//   begins; then fullpipe_cc_finish_ack.
// - A loss timer: fullpipe_cc_begin_losses; fullpipe_cc_on_lost for each packet; then one of
//   fullpipe_cc_enter_recovery_on_timer, fullpipe_cc_enter_loss and fullpipe_cc_finish_losses.
//
// Units: times are nanoseconds since an origin of the caller's choice, sizes are bytes as the
// window counts them (TCP: payload; QUIC: UDP payload), rates are bytes per second, gains are in
// 1/256. The same calls give the same results on every machine.
//
// Pointers: each points to an object of its type that the caller owns, or is null, which is an
// error unless the function says otherwise. Objects passed to one call do not overlap. Plain
// structs may be unaligned. The contents of fullpipe_cc, fullpipe_cc_spec, fullpipe_cc_rtt,
// fullpipe_cc_episode and fullpipe_cc_window_limited are the library's: an object that no init or
// parse function has written is reported as FULLPIPE_CC_ERR_STATE. They need no destructor: to
// dispose of one, free or reuse its memory. They contain no pointers into themselves, so they may
// be moved.
//
// Threads: at most one thread at a time uses an object. Different objects are independent. A spec
// is only read after it is parsed, so that threads may share it.
//
// Errors: a call that returns an error changes nothing, except texts: that of
// fullpipe_cc_spec_parse explains the error, that of fullpipe_cc_spec_text is cut. No number passed
// is invalid unless the function says so; wrong numbers make the controller's results wrong, not its
// memory.

#ifndef FULLPIPE_CC_H
#define FULLPIPE_CC_H

/* Generated from crates/fullpipe-cc-c by cbindgen: FULLPIPE_WRITE_HEADER=1 cargo test -p fullpipe-cc-c. Do not edit. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// In place of the length of a text: it ends at its first NUL.
#define FULLPIPE_CC_TO_NUL SIZE_MAX

// Version of this header, 0x00MMmmpp: compare with fullpipe_cc_version().
#define FULLPIPE_CC_VERSION 256

// Bytes of a fullpipe_cc. The library may use fewer: fullpipe_cc_size().
#define FULLPIPE_CC_SIZE 1024

// Bytes of a fullpipe_cc_spec.
#define FULLPIPE_CC_SPEC_SIZE 256

// Bytes of a fullpipe_cc_stamp.
#define FULLPIPE_CC_STAMP_SIZE 64

// "Not available", "unlimited" or "never", in 64-bit results.
#define FULLPIPE_CC_NONE UINT64_MAX



// Result of a call.
enum fullpipe_cc_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    FULLPIPE_CC_OK = 0,
    // A pointer is null.
    FULLPIPE_CC_ERR_NULL = -1,
    // Memory for an object is not aligned as its type requires.
    FULLPIPE_CC_ERR_ALIGN = -2,
    // Memory is too small, or a text is longer than memory can be.
    FULLPIPE_CC_ERR_SIZE = -3,
    // An object is not initialised.
    FULLPIPE_CC_ERR_STATE = -4,
    // Wrong order: the event is not open (closed already, of another controller, or of the other
    // kind), or an event is open that must be closed first.
    FULLPIPE_CC_ERR_EVENT = -5,
    // The text names no valid controller and settings.
    FULLPIPE_CC_ERR_SPEC = -6,
    // A value is out of the documented range.
    FULLPIPE_CC_ERR_VALUE = -7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum fullpipe_cc_status fullpipe_cc_status;
#else
typedef int32_t fullpipe_cc_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Loss-recovery state of a connection.
enum fullpipe_cc_recovery
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // No loss outstanding.
    FULLPIPE_CC_OPEN = 0,
    // Fast recovery.
    FULLPIPE_CC_RECOVERY = 1,
    // After a retransmission timeout or persistent congestion.
    FULLPIPE_CC_LOSS = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum fullpipe_cc_recovery fullpipe_cc_recovery;
#else
typedef int32_t fullpipe_cc_recovery;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A controller and its settings, checked: one serves any number of connections.
typedef struct fullpipe_cc_spec {
    // The library's.
    uint64_t storage[32];
} fullpipe_cc_spec;

// Congestion control of one connection, in the caller's memory.
typedef struct fullpipe_cc {
    // The library's.
    uint64_t storage[128];
} fullpipe_cc;

// Parameters of a new connection or path. Zero is the default of each, so that
// `struct fullpipe_cc_config config = {0};` is valid.
typedef struct fullpipe_cc_config {
    // Initial congestion window in bytes. 0: ten packets.
    uint64_t initial_cwnd;
    // Seed of the controller's random numbers, which spread the probes of BBR flows that share a
    // bottleneck: a number that differs from connection to connection. The library has no source of
    // randomness. 0: 1.
    uint64_t seed;
    // Bytes of a full packet. 0: 1448.
    uint32_t smss;
    // Not 0: the peer does not acknowledge selectively.
    uint8_t no_selective_acks;
    // Not 0: a controller without a pacing rate (cubic, reno, hybla) is paced at a rate derived from
    // its window, as Linux does under fq.
    uint8_t paced_by_window;
    // 0.
    uint8_t reserved[2];
} fullpipe_cc_config;

// State of the connection when a packet was sent. The transport keeps it with the packet, and
// passes it when the packet is acknowledged or lost. It may be copied.
typedef struct fullpipe_cc_stamp {
    // When the packet was sent.
    uint64_t sent_at;
    // Bytes delivered by then.
    uint64_t delivered;
    // When `delivered` last increased.
    uint64_t delivered_at;
    // Send time of the packet most recently delivered by then.
    uint64_t first_sent_at;
    // Bytes lost by then.
    uint64_t lost;
    // Bytes in flight, this packet included.
    uint64_t tx_in_flight;
    // Number of the transmission: 1 for a connection's first packet.
    uint64_t id;
    // Not 0: the connection was application-limited.
    uint32_t app_limited;
    // 0.
    uint32_t reserved;
} fullpipe_cc_stamp;

// An ACK or losses that are being processed: written by fullpipe_cc_begin_ack or
// fullpipe_cc_begin_losses, valid for that controller until it is closed, and closed once.
typedef struct fullpipe_cc_event {
    // The library's.
    uint64_t serial;
    // Bytes newly acknowledged in this event so far.
    uint64_t newly_acked;
    // Bytes marked lost in this event so far.
    uint64_t newly_lost;
    // The library's.
    uint32_t kind;
    // 0.
    uint32_t reserved;
} fullpipe_cc_event;

// What a transport reports at the end of an ACK. Fields that it does not know are 0;
// fullpipe_cc_ack_report_init sets all of them.
typedef struct fullpipe_cc_ack_report {
    // When the ACK arrived.
    uint64_t now;
    // Round-trip time of the newest acknowledged packet that was not retransmitted. 0 or
    // FULLPIPE_CC_NONE: unknown, here and in the next two.
    uint64_t rtt;
    // Smoothed round-trip time, this ACK included.
    uint64_t srtt;
    // Minimum round-trip time, this ACK included.
    uint64_t min_rtt;
    // Bytes in flight after the ACK: without acknowledged and lost bytes.
    uint64_t inflight;
    // Bytes sent and not acknowledged cumulatively, lost and selectively acknowledged ones
    // included. Used only with paced_by_window; `inflight` where losses are removed from it at once.
    uint64_t outstanding;
    // Packets newly reported as marked Congestion Experienced.
    uint32_t ce_count;
    // Not 0: the ACK did not advance the cumulative acknowledgement.
    uint8_t not_advanced;
    // Not 0: the window (not the application, not the receiver) limited sending in the last round
    // trip. See fullpipe_cc_window_limited.
    uint8_t cwnd_limited;
    // Not 0: selective acknowledgements leave a hole of which nothing is marked lost.
    uint8_t disorder;
    // Not 0: it acknowledges a single packet, less than full, and leaves none outstanding: the
    // receiver may have delayed such an ACK.
    uint8_t single_small_packet;
} fullpipe_cc_ack_report;

// The delivery-rate sample of an ACK.
typedef struct fullpipe_cc_rate_sample {
    // Delivery rate; FULLPIPE_CC_NONE if the ACK gave no valid sample.
    uint64_t rate;
    // Bytes delivered over `interval`.
    uint64_t delivered;
    // The longer of the send and the ACK phase.
    uint64_t interval;
    // Bytes delivered on the connection when the sample's newest packet was sent.
    uint64_t prior_delivered;
    // Bytes in flight when that packet was sent, itself included.
    uint64_t tx_in_flight;
    // Bytes marked lost between that packet's sending and now.
    uint64_t lost;
    // Not 0: that packet was sent while the application had nothing more to send.
    uint32_t app_limited;
    // Not 0: the ACK newly acknowledged a packet. Otherwise the other fields are meaningless.
    uint32_t has_packet;
} fullpipe_cc_rate_sample;

// A controller's state for plots and logs. FULLPIPE_CC_NONE: the algorithm has no such value, or
// none yet.
typedef struct fullpipe_cc_snapshot {
    // The state of its state machine (`Startup`, `ProbeBW_UP`, `SlowStart`, …): static,
    // NUL-terminated.
    const char *state;
    // The controller's congestion window; fullpipe_cc_window may be smaller in a recovery.
    uint64_t cwnd;
    // Slow-start threshold.
    uint64_t ssthresh;
    // The controller's pacing rate.
    uint64_t pacing_rate;
    // The bandwidth estimate it paces by.
    uint64_t bw;
    // The windowed maximum of the delivery rate (BBR v3 `max_bw`).
    uint64_t max_bw;
    // Upper, short-term bound on that estimate (BBR v3 `bw_shortterm`).
    uint64_t bw_shortterm;
    // The round-trip propagation estimate.
    uint64_t min_rtt;
    // Pacing gain in 1/256.
    uint64_t pacing_gain;
    // Window gain in 1/256.
    uint64_t cwnd_gain;
    // Long-term bound on bytes in flight (BBR v3 `inflight_longterm`).
    uint64_t inflight_longterm;
    // Short-term bound on bytes in flight (BBR v3 `inflight_shortterm`).
    uint64_t inflight_shortterm;
    // Packet-timed round trips so far.
    uint64_t rounds;
} fullpipe_cc_snapshot;

// Estimator of the round-trip time of one path (RFC 9002 section 5).
typedef struct fullpipe_cc_rtt {
    // The library's.
    uint64_t storage[8];
} fullpipe_cc_rtt;

// Finds where fast recovery begins and ends from packet numbers, for transports that report losses
// but not recovery. Numbers increase with each packet sent, retransmissions included.
typedef struct fullpipe_cc_episode {
    // The library's.
    uint64_t storage[8];
} fullpipe_cc_episode;

// What an event changes, from fullpipe_cc_episode_update. Of both, the end is reported first.
typedef struct fullpipe_cc_episode_change {
    // Not 0: recovery ends; call fullpipe_cc_exit_recovery.
    uint8_t exit_recovery;
    // Not 0: recovery begins; call fullpipe_cc_enter_recovery, or on a timer
    // fullpipe_cc_enter_recovery_on_timer.
    uint8_t enter_recovery;
} fullpipe_cc_episode_change;

// Whether the window, not the application, limited sending within the last round trip.
typedef struct fullpipe_cc_window_limited {
    // The library's.
    uint64_t storage[4];
} fullpipe_cc_window_limited;

// A static text of `length` bytes, without a NUL at its end: printf("%.*s", (int)length, data).
typedef struct fullpipe_cc_text {
    // Its first byte; never null.
    const char *data;
    // Its bytes.
    size_t length;
} fullpipe_cc_text;

// Description of a controller.
typedef struct fullpipe_cc_info {
    // Its name in specs.
    struct fullpipe_cc_text name;
    // One-line description.
    struct fullpipe_cc_text about;
    // Name of the equivalent Linux controller; empty if there is none.
    struct fullpipe_cc_text kernel;
    // Number of its settings.
    size_t settings;
} fullpipe_cc_info;

// Description of a setting of a controller.
typedef struct fullpipe_cc_setting {
    // Its key in specs.
    struct fullpipe_cc_text key;
    // Accepted values.
    struct fullpipe_cc_text values;
    // Its default.
    struct fullpipe_cc_text default_value;
    // One-line description.
    struct fullpipe_cc_text about;
} fullpipe_cc_setting;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, in the form of FULLPIPE_CC_VERSION.
uint32_t fullpipe_cc_version(void);

// Bytes of memory that a controller needs: at most FULLPIPE_CC_SIZE.
size_t fullpipe_cc_size(void);

// Alignment of memory for a controller: that of a fullpipe_cc.
size_t fullpipe_cc_align(void);

// Bytes of memory that a spec needs: at most FULLPIPE_CC_SPEC_SIZE.
size_t fullpipe_cc_spec_size(void);

// Bytes of a stamp: FULLPIPE_CC_STAMP_SIZE.
size_t fullpipe_cc_stamp_size(void);

// Parses `name` or `name:key=value,key=value`, for example `bbr3:beta_percent=50`, of `length`
// bytes (FULLPIPE_CC_TO_NUL: up to the first NUL), into `spec`.
//
// `error` may be null. Otherwise a NUL-terminated text in UTF-8, at most `error_size` bytes with its
// NUL, is written there: why parsing failed, or an empty one. 200 bytes are enough unless names in
// the text are long.
//
// FULLPIPE_CC_ERR_SPEC: an unknown controller or setting, an invalid value, or invalid UTF-8.
fullpipe_cc_status fullpipe_cc_spec_parse(const char *text,
                                          size_t length,
                                          struct fullpipe_cc_spec *spec,
                                          char *error,
                                          size_t error_size);

// Writes a spec as the text that fullpipe_cc_spec_parse accepts, with its NUL, to `size` bytes at
// `text`. `length` gets the bytes of the text without its NUL; it may be null.
//
// FULLPIPE_CC_ERR_SIZE: the text was cut; `length` is that of the whole text.
fullpipe_cc_status fullpipe_cc_spec_text(const struct fullpipe_cc_spec *spec,
                                         char *text,
                                         size_t size,
                                         size_t *length);

// Initialises the congestion control of a new connection in `size` bytes at `memory`: pass
// sizeof(fullpipe_cc), or at least fullpipe_cc_size(). `config` may be null: the defaults.
//
// FULLPIPE_CC_ERR_SIZE or FULLPIPE_CC_ERR_ALIGN: the memory does not suit. FULLPIPE_CC_ERR_VALUE: a
// reserved field of `config` is not 0.
fullpipe_cc_status fullpipe_cc_init(struct fullpipe_cc *memory,
                                    size_t size,
                                    const struct fullpipe_cc_spec *spec,
                                    const struct fullpipe_cc_config *config);

// Copies a controller to `size` bytes at `memory`, for example to try what would happen. No event
// may be open (FULLPIPE_CC_ERR_EVENT). Stamps serve both.
fullpipe_cc_status fullpipe_cc_copy(struct fullpipe_cc *memory, size_t size, const struct fullpipe_cc *from);

// The connection moved to another path at `now`: a new controller of `spec` and `config` (null: the
// defaults) replaces the old one, and the counts of fullpipe_cc_delivered and fullpipe_cc_lost start
// at 0. Packets sent before are ignored when they are acknowledged or lost; report as in flight only
// what is sent on the new path. `paced_by_window` stays as it was. No event may be open
// (FULLPIPE_CC_ERR_EVENT).
fullpipe_cc_status fullpipe_cc_on_path_change(struct fullpipe_cc *cc,
                                              uint64_t now,
                                              const struct fullpipe_cc_spec *spec,
                                              const struct fullpipe_cc_config *config);

// The handshake measured a first round-trip time. Call at most once, before the first packet, or not
// at all.
fullpipe_cc_status fullpipe_cc_on_handshake(struct fullpipe_cc *cc, uint64_t now, uint64_t rtt);

// The largest packet is `smss` bytes from this call on, at least 1 (FULLPIPE_CC_ERR_VALUE).
fullpipe_cc_status fullpipe_cc_on_mtu(struct fullpipe_cc *cc, uint32_t smss);

// A packet of `bytes` is sent at `now` with `inflight` bytes in flight before it. `retransmit` is not
// 0 for a retransmission, which needs a new stamp. Keep `stamp` with the packet.
fullpipe_cc_status fullpipe_cc_on_sent(struct fullpipe_cc *cc,
                                       uint64_t now,
                                       uint64_t bytes,
                                       uint64_t inflight,
                                       int retransmit,
                                       struct fullpipe_cc_stamp *stamp);

// The packets reported by fullpipe_cc_on_sent since the last burst, `bytes` in `packets`, were sent
// together: the pacer sets the next departure. Not for probes and retransmissions by a timer, which
// are not paced.
fullpipe_cc_status fullpipe_cc_on_batch_sent(struct fullpipe_cc *cc,
                                             uint64_t now,
                                             uint64_t bytes,
                                             uint64_t packets);

// The application has no more data while `inflight` bytes in flight leave the window open. Without
// this call BBR underestimates the path.
fullpipe_cc_status fullpipe_cc_mark_app_limited(struct fullpipe_cc *cc, uint64_t inflight);

// A packet of `bytes` left the flight neither acknowledged nor lost: its keys were discarded, or it
// probed the MTU.
fullpipe_cc_status fullpipe_cc_on_packet_discarded(struct fullpipe_cc *cc, uint64_t bytes);

// Opens an ACK, with `inflight` bytes in flight before it. Close it with fullpipe_cc_finish_ack.
// FULLPIPE_CC_ERR_EVENT: an event is open.
fullpipe_cc_status fullpipe_cc_begin_ack(struct fullpipe_cc *cc,
                                         uint64_t inflight,
                                         struct fullpipe_cc_event *event);

// The packet of `bytes` sent with `stamp` is newly acknowledged, cumulatively or selectively.
fullpipe_cc_status fullpipe_cc_on_acked(struct fullpipe_cc *cc,
                                        struct fullpipe_cc_event *event,
                                        uint64_t now,
                                        uint64_t bytes,
                                        const struct fullpipe_cc_stamp *stamp);

// The packet of `bytes` sent with `stamp` is newly marked lost, by an ACK or by a timer. `new_range`
// is not 0 if it starts a range of lost packets: 0 if the packet sent before it is marked lost in
// the same event. A transport that does not know passes 1 for the first packet of an event only.
fullpipe_cc_status fullpipe_cc_on_lost(struct fullpipe_cc *cc,
                                       struct fullpipe_cc_event *event,
                                       uint64_t now,
                                       uint64_t bytes,
                                       const struct fullpipe_cc_stamp *stamp,
                                       int new_range);

// The losses of an ACK start fast recovery: after them, before fullpipe_cc_finish_ack.
fullpipe_cc_status fullpipe_cc_enter_recovery(struct fullpipe_cc *cc,
                                              struct fullpipe_cc_event *event,
                                              uint64_t now);

// The losses of the open event, an ACK or of a timer, establish persistent congestion (RFC 9002
// section 7.6): `inflight` bytes remain, and the controller starts over. Not for QUIC's probe
// timeout, which is not a loss. The event stays open.
fullpipe_cc_status fullpipe_cc_on_persistent_congestion(struct fullpipe_cc *cc,
                                                        struct fullpipe_cc_event *event,
                                                        uint64_t now,
                                                        uint64_t inflight);

// Closes an ACK: the controller processes it. `sample`, its delivery-rate sample, may be null.
fullpipe_cc_status fullpipe_cc_finish_ack(struct fullpipe_cc *cc,
                                          struct fullpipe_cc_event *event,
                                          const struct fullpipe_cc_ack_report *report,
                                          struct fullpipe_cc_rate_sample *sample);

// Sets all fields of a report: at `now`, with `inflight` bytes outstanding and in flight, and
// nothing else known.
fullpipe_cc_status fullpipe_cc_ack_report_init(struct fullpipe_cc_ack_report *report,
                                               uint64_t now,
                                               uint64_t inflight);

// Opens losses that a timer found, with `inflight` bytes in flight before them. Close them with
// fullpipe_cc_enter_recovery_on_timer, fullpipe_cc_enter_loss or fullpipe_cc_finish_losses.
// FULLPIPE_CC_ERR_EVENT: an event is open.
fullpipe_cc_status fullpipe_cc_begin_losses(struct fullpipe_cc *cc,
                                            uint64_t inflight,
                                            struct fullpipe_cc_event *event);

// Closes losses of a timer that start fast recovery; they leave `inflight` bytes in flight, and one
// packet may be sent immediately.
fullpipe_cc_status fullpipe_cc_enter_recovery_on_timer(struct fullpipe_cc *cc,
                                                       struct fullpipe_cc_event *event,
                                                       uint64_t now,
                                                       uint64_t inflight);

// Closes losses of a retransmission timeout; `inflight` bytes remain after everything presumed lost
// is reported.
fullpipe_cc_status fullpipe_cc_enter_loss(struct fullpipe_cc *cc,
                                          struct fullpipe_cc_event *event,
                                          uint64_t now,
                                          uint64_t inflight);

// Closes losses of a timer that change no state: the connection recovers already.
fullpipe_cc_status fullpipe_cc_finish_losses(struct fullpipe_cc *cc, struct fullpipe_cc_event *event);

// Closes the open event, if any, without passing its end to the controller, for a transport that
// gave up in the middle of an ACK. Its token becomes invalid.
fullpipe_cc_status fullpipe_cc_cancel_event(struct fullpipe_cc *cc);

// Everything outstanding when recovery started is acknowledged. Before
// fullpipe_cc_enter_recovery if an ACK ends one recovery and starts another.
fullpipe_cc_status fullpipe_cc_exit_recovery(struct fullpipe_cc *cc, uint64_t now, uint64_t inflight);

// The losses were spurious: undoes their effects and ends a recovery in progress.
fullpipe_cc_status fullpipe_cc_undo(struct fullpipe_cc *cc, uint64_t now, uint64_t inflight);

// A tail loss probe repaired a loss before it was detected: reduces the window without a recovery.
// Has no effect on controllers that set their own window.
fullpipe_cc_status fullpipe_cc_reduce_for_repaired_loss(struct fullpipe_cc *cc,
                                                        uint64_t now,
                                                        uint64_t inflight);

// Most bytes that may be in flight. 0 if `cc` is not initialised.
uint64_t fullpipe_cc_window(const struct fullpipe_cc *cc);

// The pacing rate in bytes per second; FULLPIPE_CC_NONE if unpaced. 0 if `cc` is not initialised.
uint64_t fullpipe_cc_pacing_rate(const struct fullpipe_cc *cc);

// Most bytes of one burst, before asking fullpipe_cc_ready once more; FULLPIPE_CC_NONE if unpaced. 0
// if `cc` is not initialised.
uint64_t fullpipe_cc_send_quantum(const struct fullpipe_cc *cc);

// Whether the pacer allows a burst at `now`. False if `cc` is not initialised.
bool fullpipe_cc_ready(const struct fullpipe_cc *cc, uint64_t now);

// The earliest departure time of the next burst. FULLPIPE_CC_NONE if `cc` is not initialised.
uint64_t fullpipe_cc_next_departure(const struct fullpipe_cc *cc);

// Bytes delivered on this path so far. 0 if `cc` is not initialised.
uint64_t fullpipe_cc_delivered(const struct fullpipe_cc *cc);

// Bytes marked lost on this path so far. 0 if `cc` is not initialised.
uint64_t fullpipe_cc_lost(const struct fullpipe_cc *cc);

// The loss-recovery state. FULLPIPE_CC_OPEN if `cc` is not initialised.
fullpipe_cc_recovery fullpipe_cc_get_recovery(const struct fullpipe_cc *cc);

// Whether packets may be sent as ECN-capable. False if `cc` is not initialised.
bool fullpipe_cc_claims_ecn(const struct fullpipe_cc *cc);

// The state of the controller's state machine (`Startup`, `SlowStart`, …): static, NUL-terminated.
// Empty if `cc` is not initialised; never null.
const char *fullpipe_cc_state(const struct fullpipe_cc *cc);

// Writes the controller's state for plots and logs to `snapshot`.
fullpipe_cc_status fullpipe_cc_get_snapshot(const struct fullpipe_cc *cc,
                                            struct fullpipe_cc_snapshot *snapshot);

// Initialises an estimator without samples.
fullpipe_cc_status fullpipe_cc_rtt_init(struct fullpipe_cc_rtt *rtt);

// The newest packet that an ACK newly acknowledges was sent `latest` ago; the peer reports to have
// delayed the ACK by `ack_delay`, 0 if unknown.
fullpipe_cc_status fullpipe_cc_rtt_on_sample(struct fullpipe_cc_rtt *rtt,
                                             uint64_t latest,
                                             uint64_t ack_delay);

// Persistent congestion: the minimum restarts at the latest sample.
fullpipe_cc_status fullpipe_cc_rtt_on_persistent_congestion(struct fullpipe_cc_rtt *rtt);

// The latest sample; FULLPIPE_CC_NONE before the first.
uint64_t fullpipe_cc_rtt_latest(const struct fullpipe_cc_rtt *rtt);

// The smoothed round-trip time; FULLPIPE_CC_NONE before the first sample.
uint64_t fullpipe_cc_rtt_smoothed(const struct fullpipe_cc_rtt *rtt);

// The mean deviation; FULLPIPE_CC_NONE before the first sample.
uint64_t fullpipe_cc_rtt_variation(const struct fullpipe_cc_rtt *rtt);

// The minimum; FULLPIPE_CC_NONE before the first sample.
uint64_t fullpipe_cc_rtt_min(const struct fullpipe_cc_rtt *rtt);

// The probe timeout without the peer's largest ACK delay (RFC 9002 section 6.2.1); FULLPIPE_CC_NONE
// before the first sample.
uint64_t fullpipe_cc_rtt_probe_timeout(const struct fullpipe_cc_rtt *rtt);

// Initialises an episode: no recovery is in progress. Also after spurious losses.
fullpipe_cc_status fullpipe_cc_episode_init(struct fullpipe_cc_episode *episode);

// Packet `number` is acknowledged.
fullpipe_cc_status fullpipe_cc_episode_on_acked(struct fullpipe_cc_episode *episode, uint64_t number);

// Packet `number` is lost; the next packet to be sent has number `next`.
fullpipe_cc_status fullpipe_cc_episode_on_lost(struct fullpipe_cc_episode *episode,
                                               uint64_t number,
                                               uint64_t next);

// Once for each event, after its acknowledged and lost packets: what changes. `oldest` is the number
// of the oldest packet in flight, FULLPIPE_CC_NONE if unknown or none is; `next` is the number of the
// next packet to be sent.
fullpipe_cc_status fullpipe_cc_episode_update(struct fullpipe_cc_episode *episode,
                                              uint64_t oldest,
                                              uint64_t next,
                                              struct fullpipe_cc_episode_change *change);

// Persistent congestion or a retransmission timeout: everything sent so far, below `next`, is one
// episode.
fullpipe_cc_status fullpipe_cc_episode_restart(struct fullpipe_cc_episode *episode, uint64_t next);

// Whether an episode is in progress. False if `episode` is not initialised.
bool fullpipe_cc_episode_is_active(const struct fullpipe_cc_episode *episode);

// Initialises it: not limited so far.
fullpipe_cc_status fullpipe_cc_window_limited_init(struct fullpipe_cc_window_limited *limited);

// The window keeps the transport from sending, with `delivered` bytes delivered so far
// (fullpipe_cc_delivered) and `inflight` in flight.
fullpipe_cc_status fullpipe_cc_window_limited_on_limited(struct fullpipe_cc_window_limited *limited,
                                                         uint64_t delivered,
                                                         uint64_t inflight);

// Whether an ACK that raises the delivered count to `delivered` belongs to a limited round: the value
// of `cwnd_limited`. False if `limited` is not initialised.
bool fullpipe_cc_window_limited_is_limited(const struct fullpipe_cc_window_limited *limited,
                                           uint64_t delivered);

// The number of controllers.
size_t fullpipe_cc_controllers(void);

// Describes controller `index`, from 0 to fullpipe_cc_controllers() - 1 (FULLPIPE_CC_ERR_VALUE).
fullpipe_cc_status fullpipe_cc_get_controller(size_t index, struct fullpipe_cc_info *info);

// Describes setting `setting` of controller `controller`, both from 0 (FULLPIPE_CC_ERR_VALUE).
fullpipe_cc_status fullpipe_cc_get_setting(size_t controller, size_t setting, struct fullpipe_cc_setting *to);

// Describes the controller of a connection.
fullpipe_cc_status fullpipe_cc_get_info(const struct fullpipe_cc *cc, struct fullpipe_cc_info *info);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FULLPIPE_CC_H */

#if defined(__cplusplus) && __cplusplus >= 201103L
#define FULLPIPE_CC_ASSERT(condition, text) static_assert(condition, text)
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define FULLPIPE_CC_ASSERT(condition, text) _Static_assert(condition, text)
#else
#define FULLPIPE_CC_ASSERT(condition, text) struct fullpipe_cc_no_assertion
#endif
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc) == FULLPIPE_CC_SIZE, "layout of fullpipe_cc");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_spec) == FULLPIPE_CC_SPEC_SIZE, "layout of fullpipe_cc_spec");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_config) == 24, "layout of fullpipe_cc_config");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_stamp) == FULLPIPE_CC_STAMP_SIZE, "layout of fullpipe_cc_stamp");
FULLPIPE_CC_ASSERT(offsetof(fullpipe_cc_stamp, app_limited) == 56, "layout of fullpipe_cc_stamp");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_event) == 32, "layout of fullpipe_cc_event");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_ack_report) == 56, "layout of fullpipe_cc_ack_report");
FULLPIPE_CC_ASSERT(offsetof(fullpipe_cc_ack_report, not_advanced) == 52, "layout of fullpipe_cc_ack_report");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_rate_sample) == 56, "layout of fullpipe_cc_rate_sample");
FULLPIPE_CC_ASSERT(offsetof(fullpipe_cc_snapshot, cwnd) == 8, "layout of fullpipe_cc_snapshot");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_rtt) == 64, "layout of fullpipe_cc_rtt");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_episode) == 64, "layout of fullpipe_cc_episode");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_window_limited) == 32, "layout of fullpipe_cc_window_limited");
FULLPIPE_CC_ASSERT(sizeof(fullpipe_cc_status) == 4, "layout of fullpipe_cc_status");
#undef FULLPIPE_CC_ASSERT
