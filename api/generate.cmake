# tendril_generate_api(FOLDER): a target tendril_api_NAME that makes the sources of the API which
# FOLDER describes, in generated/api/NAME_*. NAME is the folder's name. Every file of the
# description and of the generator is an input: editing one generates again.
set_property(GLOBAL PROPERTY TENDRIL_GENERATOR_FOLDER ${CMAKE_CURRENT_LIST_DIR}/gen)

function(tendril_generate_api folder)
  get_filename_component(name ${folder} NAME)
  get_property(generator GLOBAL PROPERTY TENDRIL_GENERATOR_FOLDER)
  set(generate ${Python3_EXECUTABLE} ${generator}/main.py ${CMAKE_BINARY_DIR}/generated --api
    ${folder})
  set(stamp ${CMAKE_BINARY_DIR}/generated/${name}.stamp)
  file(GLOB_RECURSE inputs CONFIGURE_DEPENDS ${generator}/*.py ${folder}/*.ini ${folder}/*.spec
       ${folder}/*.txt ${folder}/*.csv ${folder}/*.lock)
  # api.ini names the outputs.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/api.ini)
  execute_process(COMMAND ${generate} --list OUTPUT_VARIABLE outputs
    OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" outputs "${outputs}")
  add_custom_command(OUTPUT ${stamp} BYPRODUCTS ${outputs}
                     COMMAND ${generate} COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
                     DEPENDS ${inputs} COMMENT "Generating ${name} from its description")
  add_custom_target(tendril_api_${name} DEPENDS ${stamp})
endfunction()
