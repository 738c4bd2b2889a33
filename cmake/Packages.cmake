# Debian packages, one for each component of cmake/Install.cmake (`make deb`): for the Debian release
# on which they are built, under /usr. Units come disabled, as no script enables them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ergon)
set(CPACK_PACKAGE_CONTACT "the maintainers of ergon <ergon@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
# The two that have programs: in others each file would be looked at in vain.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# ergon_package(component name section summary [dependency ...])
function(ergon_package component name section summary)
  string(TOUPPER ${component} upper)
  string(REPLACE ";" ", " depends "${ARGN}")
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
          RENAME copyright COMPONENT ${component})
endfunction()
set(same "(= ${PROJECT_VERSION})")
ergon_package(program ergon science "${PROJECT_DESCRIPTION}" "libergon ${same}")
ergon_package(library libergon libs "Library of ergon, with its data and the guardian of clocks")
ergon_package(development libergon-dev libdevel "Headers of libergon" "libergon ${same}")
ergon_package(python python3-ergon python "Python package of ergon" "libergon ${same}" "python3")
ergon_package(daemon ergond admin "Daemon of GPU clocks and power limits, for systemd"
              "ergon ${same}")

# systemd reads its units anew.
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/ergond/postinst
    ${PROJECT_SOURCE_DIR}/cmake/ergond/prerm ${PROJECT_SOURCE_DIR}/cmake/ergond/postrm)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/schedule/postinst
    ${PROJECT_SOURCE_DIR}/cmake/schedule/prerm ${PROJECT_SOURCE_DIR}/cmake/schedule/postrm)
include(CPack)
