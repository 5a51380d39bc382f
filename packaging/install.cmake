# What `cmake --install` puts where: components client, server, pool and softgpu. The client's
# programs and libraries come from the portable build, so they are files here and no targets.
include(GNUInstallDirs)

set(programs ${CMAKE_BINARY_DIR}/bin)
set(client ${CMAKE_BINARY_DIR}/lib/client)

install(PROGRAMS ${programs}/tendril ${programs}/tendril-bench DESTINATION bin COMPONENT client)
install(FILES ${client}/libcuda.so.1 ${client}/libnvidia-ml.so.1 DESTINATION lib/tendril
  COMPONENT client)
install(FILES ${client}/nccl/libnccl.so.2 DESTINATION lib/tendril/nccl COMPONENT client)
install(FILES ${client}/opencl/libtendril-opencl.so ${client}/opencl/tendril.icd
        DESTINATION lib/tendril/opencl COMPONENT client)
install(CODE [[
  foreach(library cuda nvidia-ml)
    file(CREATE_LINK lib${library}.so.1
      "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/tendril/lib${library}.so" SYMBOLIC)
  endforeach()
]] COMPONENT client)
# Written by the program itself, so that they fit it.
install(CODE "
  set(root \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share\")
  file(MAKE_DIRECTORY \"\${root}/man/man1\")
  execute_process(COMMAND ${programs}/tendril manual \"\${root}/man/man1\"
    COMMAND_ERROR_IS_FATAL ANY)
  foreach(place bash:bash-completion/completions/tendril
      zsh:zsh/vendor-completions/_tendril fish:fish/vendor_completions.d/tendril.fish)
    string(REGEX MATCH \"^[a-z]+\" shell \${place})
    string(REGEX REPLACE \"^[a-z]+:\" \"\" file \${place})
    get_filename_component(folder \${file} DIRECTORY)
    file(MAKE_DIRECTORY \"\${root}/\${folder}\")
    execute_process(COMMAND ${programs}/tendril completion \${shell}
      OUTPUT_FILE \"\${root}/\${file}\" COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
" COMPONENT client)

install(PROGRAMS ${programs}/tendril-worker DESTINATION libexec/tendril COMPONENT server)
install(FILES ${CMAKE_BINARY_DIR}/lib/libtendril-nccl-driver.so DESTINATION libexec/tendril
  COMPONENT server)
install(CODE [[
  file(MAKE_DIRECTORY "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin")
  file(CREATE_LINK tendril "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/bin/tendrild" SYMBOLIC)
]] COMPONENT server)
foreach(part server pool)
  install(FILES ${CMAKE_SOURCE_DIR}/packaging/systemd/tendril-${part}.service
    DESTINATION lib/systemd/system COMPONENT ${part})
  install(FILES ${CMAKE_SOURCE_DIR}/packaging/systemd/tendril-${part}.sysusers
    DESTINATION lib/sysusers.d RENAME tendril-${part}.conf COMPONENT ${part})
endforeach()

install(FILES ${CMAKE_BINARY_DIR}/lib/libtendril-softgpu.so
  ${CMAKE_BINARY_DIR}/lib/libtendril-softgpu-nvml.so
  DESTINATION lib/tendril-softgpu COMPONENT softgpu)

set(CPACK_PACKAGE_NAME tendril)
set(CPACK_PACKAGE_VENDOR Tendril)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME tendril-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_COMPONENTS_ALL client server pool softgpu)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
include(CPack)
