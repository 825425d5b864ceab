/* NewReno (RFC 5681, RFC 6582) as a program that fullpipe races and judges:
 *   cc -O2 -o reno examples/controllers/reno.c && fullpipe race exec:./reno reno
 * It follows docs/reference/controller-protocol.md.
 * It needs few fields and no nesting, so it searches for them instead of parsing JSON. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t packet, acked, window, ssthresh = INT64_MAX;
static uint64_t window_before, ssthresh_before; /* to undo a reduction that was spurious */
static bool progress = true;                    /* something was delivered since the last timeout */

/* What follows "key": in the line, or an empty text. */
static const char *field(const char *line, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    return at ? at + strlen(quoted) : "";
}

static uint64_t number(const char *line, const char *key)
{
    return strtoull(field(line, key), NULL, 10);
}

static bool is(const char *line, const char *key, const char *value)
{
    return strncmp(field(line, key), value, strlen(value)) == 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void on_acked(const char *line)
{
    uint64_t bytes = number(line, "bytes");
    bool limited = is(line, "cwnd_limited", "true");
    progress |= bytes > 0;
    if (is(line, "recovery", "\"recovery\""))
        return;
    if (window < ssthresh) { /* slow start, while half of the window is in use (RFC 7661) */
        if (limited || 2 * number(line, "inflight_before") > window)
            window = window + bytes < ssthresh ? window + bytes : ssthresh;
    } else if (limited && (acked += bytes) >= window) {
        acked -= window;
        window += packet;
    }
}

static void on_recovery(const char *line)
{
    bool timeout = is(line, "change", "\"timeout\"");
    if (is(line, "change", "\"enter\"") || (timeout && progress)) { /* not each time the timer backs off */
        window_before = window;
        ssthresh_before = ssthresh;
        window = ssthresh = larger(window / 2, 2 * packet);
        acked = 0;
    }
    if (timeout) {
        window = packet;
        progress = false;
    }
    if (is(line, "change", "\"spurious\"") && window_before) {
        window = larger(window, window_before);
        ssthresh = ssthresh_before;
        window_before = 0;
    }
}

int main(void)
{
    static char line[65536];
    while (fgets(line, sizeof line, stdin)) {
        const char *first = "";
        if (is(line, "event", "\"sent\"") || is(line, "event", "\"lost\""))
            continue; /* the only lines without an answer */
        if (is(line, "event", "\"init\"")) {
            packet = number(line, "packet_bytes");
            window = number(line, "initial_window");
            first = "\"schema\":\"fullpipe/controller/1\",\"sent\":false,\"prr\":true,";
        } else if (is(line, "event", "\"acked\"")) {
            on_acked(line);
        } else if (is(line, "event", "\"recovery\"")) {
            on_recovery(line);
        }
        printf("{%s\"window\":%" PRIu64 ",\"ssthresh\":%" PRIu64 "}\n", first, window, ssthresh);
        fflush(stdout);
    }
}
