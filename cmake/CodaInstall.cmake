# install() rules and the package that find_package(coda) reads.
include(CMakePackageConfigHelpers)

set(_coda_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/coda")
set_target_properties(coda_abi PROPERTIES EXPORT_NAME abi)
install(TARGETS coda coda_abi EXPORT coda-targets)
if(TARGET coda_cli)
  install(TARGETS coda_cli)
endif()
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/coda"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  FILES_MATCHING
  PATTERN "*.h"
  PATTERN "*.cuh"
  REGEX "/${CODA_PRIVATE_HEADERS}$" EXCLUDE)
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

install(EXPORT coda-targets NAMESPACE coda:: DESTINATION "${_coda_package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/coda-config.cmake.in" "${PROJECT_BINARY_DIR}/coda-config.cmake"
                              INSTALL_DESTINATION "${_coda_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/coda-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/coda-config.cmake" "${PROJECT_BINARY_DIR}/coda-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/CodaProgram.cmake" "${PROJECT_SOURCE_DIR}/cmake/CodaTorchLibrary.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/torch_exports.map" DESTINATION "${_coda_package_dir}")
if(CODA_CUDA_FOUND)
  install(PROGRAMS "${PROJECT_SOURCE_DIR}/cmake/ptxas_gate.sh" DESTINATION "${_coda_package_dir}")
endif()
