/* Signals that end a run: noticed, and asked for between its steps. */
#include "base/interrupt.h"

#include "base/call.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* The handler runs in one thread and all others look: lock-free, so that a handler may set it. */
static atomic_int caught, requested;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "signal handlers need lock-free atomics");

static void on_signal(int number)
{
    atomic_store_explicit(&caught, number, memory_order_relaxed);
}

static void on_request(int number)
{
    (void)number;
    atomic_store_explicit(&requested, 1, memory_order_relaxed);
}

/* A handler rather than SIG_IGN, which programs that this one starts would inherit. */
static void on_large_file(int number)
{
    (void)number;
}

void erg_interrupt_install(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before;
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup(1) */
        sigaction(SIGHUP, &action, NULL);
    action.sa_handler = on_large_file;
    action.sa_flags = SA_RESTART;
    sigaction(SIGXFSZ, &action, NULL); /* the write then fails with EFBIG */
}

void erg_interrupt_on(int number)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

void erg_interrupt_request_on(int number)
{
    struct sigaction action = {.sa_handler = on_request, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

bool erg_interrupt_take_request(void)
{
    return atomic_exchange_explicit(&requested, 0, memory_order_relaxed) != 0;
}

int erg_interrupt_signal(void)
{
    return atomic_load_explicit(&caught, memory_order_relaxed);
}

bool erg_interrupted(void)
{
    return erg_interrupt_signal() != 0 || erg_call_is_cancelled();
}

int erg_interrupt_check(struct erg_error *err)
{
    if (!erg_interrupted())
        return 0;
    return erg_fail(err, ERG_INTERRUPTED, "interrupted before it was done");
}

void erg_interrupt_explain(struct erg_error *err)
{
    if (err->status == ERG_INTERRUPTED)
        (void)erg_fail(
            err, ERG_INTERRUPTED,
            "interrupted; finished measurements are stored, run the same command to continue");
}
