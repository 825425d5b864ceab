/* A program without a C library: it links, which is all that the test asks for. */
#include "fullpipe_cc.h"

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);
int bcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *text);
void _start(void);

void *memcpy(void *to, const void *from, size_t n) {
    return memmove(to, from, n);
}

void *memmove(void *to, const void *from, size_t n) {
    volatile unsigned char *t = to;
    const unsigned char *f = from;
    size_t i;
    for (i = 0; i < n; i++) {
        size_t at = (uintptr_t)to < (uintptr_t)from ? i : n - 1 - i;
        t[at] = f[at];
    }
    return to;
}

void *memset(void *to, int byte, size_t n) {
    volatile unsigned char *t = to;
    while (n-- > 0) {
        t[n] = (unsigned char)byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t n) {
    const unsigned char *x = a, *y = b;
    for (; n > 0; n--, x++, y++) {
        if (*x != *y) {
            return *x < *y ? -1 : 1;
        }
    }
    return 0;
}

int bcmp(const void *a, const void *b, size_t n) {
    return memcmp(a, b, n);
}

size_t strlen(const char *text) {
    volatile const char *end = text;
    while (*end) {
        end++;
    }
    return (size_t)(end - text);
}

void _start(void) {
    static fullpipe_cc cc;
    static fullpipe_cc_spec spec;
    fullpipe_cc_spec_parse("bbr3", FULLPIPE_CC_TO_NUL, &spec, NULL, 0);
    fullpipe_cc_init(&cc, sizeof cc, &spec, NULL);
    for (;;) {
    }
}
