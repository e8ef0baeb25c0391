/* The sentence that tells a person why something could not be done. */
#include "shim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char failure[FAILURE_BYTES];

bool fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure, sizeof failure, format, arguments);
    va_end(arguments);
    return false;
}

bool fail_errno(const char *what) {
    return fail("%s: %s", what, strerror(errno));
}
