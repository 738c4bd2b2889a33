#include "base/interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    (void)number;
    caught = 1;
}

void erg_interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool erg_interrupted(void)
{
    return caught != 0;
}

int erg_interrupt_check(struct erg_error *err)
{
    if (!caught)
        return 0;
    return erg_fail(
        err, ERG_INTERRUPTED,
        "interrupted; every finished measurement is kept, run the same command to go on");
}
