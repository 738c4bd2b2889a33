/*
 * The frontier of a measured pipeline, and the rows of it: ask PROFILE.csv MICROBATCHES
 *
 *     cc ask.c $(pkg-config --cflags --libs ergon) -o ask && ./ask profile.csv 12
 */
#include <ergon/ask.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_answer *answer;
    const double waiting_w = 80;
    if (argc != 3) {
        fprintf(stderr, "usage: ask PROFILE.csv MICROBATCHES\n");
        return 2;
    }
    const struct erg_ask_frontier question = {.size = sizeof question,
                                              .profile = argv[1],
                                              .microbatches = atoi(argv[2]),
                                              .blocking_power_w = &waiting_w};
    if (erg_ask_frontier(&answer, &question, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    printf("%s%s", erg_answer_text(answer), erg_answer_csv(answer));
    erg_answer_free(answer);
    return 0;
}
