# What `make install` puts where. Nothing installed names the prefix, so that a tree staged with
# DESTDIR, or moved later, works: the program finds its data, and pkg-config the library, from
# where they themselves lie. There is no static library: it would show what libergon.so hides (every
# erg_ symbol of every room), and look for its guardian beside whatever program it is part of.
# A component is a Debian package of cmake/Packages.cmake.
install(TARGETS ergon LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(TARGETS ergon_cli COMPONENT program)
install(TARGETS ergon_guardian DESTINATION libexec/ergon COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ergon DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development FILES_MATCHING PATTERN *.h)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/data/ DESTINATION ${CMAKE_INSTALL_DATADIR}/ergon
        COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
        USE_SOURCE_PERMISSIONS COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/formats ${PROJECT_SOURCE_DIR}/docs/methods
        ${PROJECT_SOURCE_DIR}/docs/reference DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
# Where Python 3 of Debian looks when the prefix is /usr; the package finds the library above itself.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python/ergon DESTINATION lib/python3/dist-packages
        COMPONENT python FILES_MATCHING PATTERN *.py PATTERN py.typed)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT program FILES_MATCHING PATTERN *.1 PATTERN ergon-daemon.1 EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/man/ergon-daemon.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT daemon)

# Pages of section 3, made from the public headers.
file(GLOB manual_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/ergon/*.h
     ${PROJECT_SOURCE_DIR}/examples/c/*.c)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/man3/ergon_plan.3
  COMMAND sh ${PROJECT_SOURCE_DIR}/scripts/header-man.sh ${PROJECT_SOURCE_DIR}
          ${PROJECT_BINARY_DIR}/man3 ${PROJECT_VERSION}
  DEPENDS ${manual_sources} ${PROJECT_SOURCE_DIR}/scripts/header-man.sh
          ${PROJECT_SOURCE_DIR}/scripts/header-man.awk ${PROJECT_SOURCE_DIR}/man/ergon.1 VERBATIM)
add_custom_target(manual ALL DEPENDS ${PROJECT_BINARY_DIR}/man3/ergon_plan.3)
install(DIRECTORY ${PROJECT_BINARY_DIR}/man3/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3
        COMPONENT development)

# The units of the daemon and of `ergon schedule`, which nobody enables but the administrator. They
# name no path of the prefix.
install(FILES ${PROJECT_SOURCE_DIR}/examples/live/ergon-schedule.service
        DESTINATION lib/systemd/system COMPONENT program)
install(FILES ${PROJECT_SOURCE_DIR}/examples/daemon/ergond.service ${PROJECT_SOURCE_DIR}/examples/daemon/ergond.socket
        DESTINATION lib/systemd/system COMPONENT daemon)

# Paths relative to the folder of ergon.pc.
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ERGON_PC_PREFIX "${up}")
configure_file(cmake/ergon.pc.in ergon.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ergon.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)

# Shell completions, printed by the program itself.
function(ergon_completion shell file destination)
  set(output ${PROJECT_BINARY_DIR}/completions/${file})
  add_custom_command(OUTPUT ${output} COMMAND ergon_cli completion ${shell} > ${output}
                     DEPENDS ergon_cli VERBATIM)
  install(FILES ${output} DESTINATION ${CMAKE_INSTALL_DATADIR}/${destination} COMPONENT program)
  set_property(GLOBAL APPEND PROPERTY ergon_completions ${output})
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/completions)
ergon_completion(bash ergon bash-completion/completions)
ergon_completion(zsh _ergon zsh/site-functions)
ergon_completion(fish ergon.fish fish/vendor_completions.d)
get_property(completions GLOBAL PROPERTY ergon_completions)
add_custom_target(completions ALL DEPENDS ${completions})
