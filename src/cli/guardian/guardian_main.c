/*
 * ergon-guardian: started by ergon itself, never by hand (telemetry/guardian.h). Its standard input
 * is the socket to the process whose number is its argument.
 */
#include "base/text.h"
#include "telemetry/guardian.h"

#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct erg_error error;
    long owner;
    if (argc != 2 || !erg_parse_long(argv[1], &owner)) {
        fprintf(stderr, "ergon-guardian: started by ergon where it locks clocks, not by hand\n");
        return ERG_USAGE;
    }
    if (erg_guardian_serve(STDIN_FILENO, (pid_t)owner, &error) == 0)
        return ERG_OK;
    fprintf(stderr, "ergon-guardian: %s\n", error.message);
    return (int)error.status;
}
