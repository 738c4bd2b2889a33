# Libraries from the distribution; scripts/install-packages.sh names their packages.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(CYAML REQUIRED IMPORTED_TARGET libcyaml)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncursesw)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(COIN REQUIRED IMPORTED_TARGET clp cbc) # linear and integer programs
pkg_check_modules(TOKENS REQUIRED IMPORTED_TARGET libpcre2-8 libutf8proc) # tokenizers
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash) # checkpoints
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
