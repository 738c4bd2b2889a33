/*
 * Layouts of a study by power and heat: characterize STUDY.yaml FOLDER
 *
 *     cc characterize.c $(pkg-config --cflags --libs ergon) -o characterize
 *     ./characterize examples/characterize/charllm-fault-h200.yaml out
 */
#include <ergon/characterize.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_characterization *study;
    struct erg_characterization_counts counts = {.size = sizeof counts};
    if (argc != 3) {
        fprintf(stderr, "usage: characterize STUDY.yaml FOLDER\n");
        return 2;
    }
    struct erg_characterization_options options = {
        .size = sizeof options, .file = argv[1], .folder = argv[2]};
    if (erg_characterize(&study, &options, &err) != 0 ||
        erg_characterization_counts(study, &counts, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    printf("%d points ran: %d ok, %d out of memory, %d impossible, %d failed\n", (int)counts.ran,
           (int)counts.ok, (int)counts.memory, (int)counts.impossible, (int)counts.failed);
    erg_characterization_free(study);
    return 0;
}
