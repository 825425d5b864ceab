// The header serves C++, too.
#include "fullpipe_cc.h"
#include "fullpipe_cc.h"

int main() {
    fullpipe_cc cc;
    fullpipe_cc_spec spec;
    if (fullpipe_cc_spec_parse("bbr3", FULLPIPE_CC_TO_NUL, &spec, nullptr, 0) != FULLPIPE_CC_OK) {
        return 1;
    }
    if (fullpipe_cc_init(&cc, sizeof cc, &spec, nullptr) != FULLPIPE_CC_OK) {
        return 2;
    }
    return fullpipe_cc_window(&cc) == 14480 ? 0 : 3;
}
