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
install(FILES ${client}/opencl/container/tendril.icd DESTINATION lib/tendril/opencl/container
  COMPONENT client)
install(PROGRAMS ${client}/bin/nvidia-smi DESTINATION lib/tendril/bin COMPONENT client)
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
install(PROGRAMS ${programs}/demo/mandelbrot DESTINATION lib/tendril-softgpu COMPONENT softgpu)

set(CPACK_PACKAGE_NAME tendril)
set(CPACK_PACKAGE_VENDOR Tendril)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME tendril-${PROJECT_VERSION}-linux-x86_64)
set(CPACK_COMPONENTS_ALL client server pool softgpu)
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)
# rpm: one package for each component; that of the client is called tendril.
set(CPACK_PACKAGE_CONTACT developers@tendril.example)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Network-attached GPUs")
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_RPM_MAIN_COMPONENT client)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
foreach(part SERVER POOL)
  string(TOLOWER ${part} file)
  set(CPACK_RPM_${part}_PACKAGE_REQUIRES "tendril = ${PROJECT_VERSION}")
  set(CPACK_RPM_${part}_POST_INSTALL_SCRIPT_FILE
    ${CMAKE_SOURCE_DIR}/packaging/rpm-scripts/${file}-installed)
endforeach()
# Folders of the system are not ours. Nobody else shall take our libcuda.so.1 for the driver's.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/systemd /usr/lib/systemd/system
  /usr/lib/sysusers.d /usr/libexec /usr/share/man /usr/share/man/man1 /usr/share/bash-completion
  /usr/share/bash-completion/completions /usr/share/zsh /usr/share/fish)
set(CPACK_RPM_SPEC_MORE_DEFINE "%define __provides_exclude_from ^/usr/lib/(exec/)?tendril.*$
%define __requires_exclude ^libcuda.*$
%define _build_id_links none
%define __strip /bin/true")
include(CPack)
