/* How schedules are searched: a job asks for a method by name, the search (search/search.h) runs
 * it. */
#ifndef ERG_JOB_SEARCH_METHOD_H
#define ERG_JOB_SEARCH_METHOD_H

enum erg_search_method {
    ERG_SEARCH_GP,
    ERG_SEARCH_TREES,
    ERG_SEARCH_RANDOM,
    ERG_SEARCH_EXHAUSTIVE,
};

#endif
