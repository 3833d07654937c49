{{/* The names and labels that the objects of a release share. */}}
{{- define "lockstep.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "lockstep.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lockstep.labels" -}}
{{ include "lockstep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lockstep.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "lockstep.name" .)) -}}
{{- end -}}

{{- define "lockstep.passwordSecret" -}}
{{- .Values.rootPassword.existingSecret | default (printf "%s-root" (include "lockstep.name" .)) -}}
{{- end -}}
